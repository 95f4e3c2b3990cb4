package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/providers/periodicreport"
)

// hookID is the i-th hook: the shipped one, or a copy of it under another name.
func hookID(i int) events.HookID {
	if i == 0 {
		return periodicreport.HookID
	}
	return fmt.Sprintf("%s.copy_%02d", periodicreport.CapabilityID, i)
}

func hookIDs(n int) []events.HookID {
	ids := make([]events.HookID, n)
	for i := range ids {
		ids[i] = hookID(i)
	}
	return ids
}

// callTimeout is as long as the contract allows, for every variant: saturated, a machine that is slow or busy with
// something else makes calls wait, and a measurement of timeouts would be of nothing.
const callTimeout = events.MaxTimeoutMillis * time.Millisecond

// hookFile is the shipped file under the hook's name and with the timeout above.
func hookFile(i int) registry.File {
	data := periodicreport.HookFile
	for from, to := range map[string]string{
		periodicreport.HookID: hookID(i),
		`"timeout_ms": 1000`:  fmt.Sprintf(`"timeout_ms": %d`, callTimeout.Milliseconds()),
	} {
		data = bytes.ReplaceAll(data, []byte(from), []byte(to))
	}
	return registry.File{Name: hookID(i) + ".json", Data: data}
}

// registration is the one in the hook's file.
func registration(i int) (*events.Registration, error) {
	file, err := events.DecodeValue[struct {
		PayloadSchemas jsontext.Value `json:"payload_schemas"`
		Registration   jsontext.Value `json:"registration"`
	}](hookFile(i).Data)
	if err != nil {
		return nil, fmt.Errorf("read the hook file: %w", err)
	}
	return events.Decode[events.Registration](file.Registration)
}

// profile is the name of the one profile.
const profile = "default"

// installed is what our dispatcher is started with.
func installed(hooks int) (*registry.Installed, error) {
	listed := strings.Join(hookIDs(hooks), ", ")
	files := registry.Files{Profiles: registry.File{
		Name: "profiles.yaml",
		Data: []byte("profiles: {" + profile + ": {enabled: true, hooks: [" + listed + "]}}\n"),
	}}
	for i := range hooks {
		files.Hooks = append(files.Hooks, hookFile(i))
	}
	return registry.Load(files)
}
