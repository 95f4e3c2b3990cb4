// Package providertest is the conformance kit for providers. It talks to a provider over NATS and nothing else, so it
// judges one in any language: [Run] starts replicas through a function that may as well start a process.
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, server.ClientURL(), providertest.Provider{…})
//	}
//
// What is held: a provider can be discovered; a valid input gives a valid result, bound to its dispatch and within its
// budget; equal inputs give equal bytes, from every replica; what breaks the contract is answered with an error that
// repeats nothing of it, and harms no later call; calls do not mix; replicas share the load; stopping loses no call.
package providertest
