// Package registry reads what a composition root installs: one file per hook, and one file of profiles.
//
// Two things can be wrong, and they end differently.
//
// What a hook's file says wrong costs that hook alone. It is a [Rejection]: the hook never runs, the refusal is
// recorded under the digest of the raw file, and every other hook runs. That covers a file that cannot be read, a
// malformed registration, a declared intent kind with no payload schema, a schema that does not compile or that no
// declared kind asks for, and a limit out of range. A registration above the ceilings of a profile is rejected in
// that profile only. As long as its hook id can be read, a rejected hook still counts as installed.
//
// What the files say against each other, or the profiles file says wrong, is a contradiction. Nothing starts, and
// all of them are listed at once in [Contradictions]: two files with one hook id, an allowlisted hook that no file
// registers, hooks of one event kind that together declare more than a profile allows a receipt, and every value of
// the profiles file that breaks its rule.
//
// A file is JSON if its name ends in .json, and then its registration is decoded as it stands. Any other file is
// YAML, read strictly: no key twice, none unknown, one document. YAML has its own spellings of numbers and booleans;
// what counts is the JSON it stands for. A hook file:
//
//	registration:                          # the document, whole
//	  schema_version: loopx_post_writeback_capability_hook_registration_v0
//	  hook_id: capability.name
//	  …
//	payload_schemas:                       # a JSON Schema for each declared intent kind
//	  capability.kind: {type: object, …}
//	max_in_flight: 1024                    # calls at a time, see [DefaultLimits]
//	backlog_ceiling: 1000000               # waiting dispatches, see [Limits]
//
// The profiles file:
//
//	profiles:
//	  default:
//	    enabled: true                      # false: its receipts leave nothing behind
//	    hooks: [capability.name]           # the allowlist
//	    ceilings:
//	      hook:                            # what one hook may declare, by default all that the contract allows
//	        max_invocations_per_dispatch: 16
//	        max_intents_per_dispatch: 16
//	        max_result_bytes: 65536
//	        timeout_ms: 30000
//	      receipt:                         # what the hooks of one event kind may declare together
//	        max_intents: 64
//	        max_result_bytes: 1048576
//	    retry: {max_attempts: 12, initial: 1s, max: 5m}
//
// Here is no clock, no broker and no decision about a receipt: the host records the refusals, and the core decides.
package registry
