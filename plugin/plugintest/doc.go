// Package plugintest is the conformance kit for provider plugins: what
// `sbxhost plugin test` runs.
//
// [Run] takes a packed module and a fake of its vendor's API, made with
// fakevendor, and returns a [Report]. A check has a name that stays the same, a
// status and a reason:
//
//	static/…      what can be said without running anything
//	references/…  values are refused, before plugin code runs, where they must be
//	provider/…    every check of providertest that the manifest makes applicable
//	lifecycle/…   duplicate create, destroy twice, parallel instances
//	errno/OP      each import of an operation fails in turn
//	http/OP/…     the vendor misbehaves: refuses, resets, loses, cuts, hangs …
//	cancel/…      the caller gives up while the plugin waits, sleeps, computes
//	limits/…      fuel and memory
//	handles/…     environment handles altered and replayed (plugin-driven)
//	taint/…       no byte that the plugin can see holds a value, in any form
//
// Plugins whose sandboxes have no shell are tested with the commands they know; see
// [Words]. Waits are hurried: the host looks at once again at a sandbox that starts,
// and a plugin's sleep is short, but in checks that are about waiting.
//
// A check that the manifest makes meaningless is "not declared"; one that cannot
// be carried out with what was given is "not proved". Neither counts as passed.
//
// # The taint proof
//
// The kit gives the plugin's sandbox canaries as protected values, as file
// contents and as input, lets the fake echo whole requests back, and searches
// everything that crosses into the plugin's sight, its whole linear memory after
// every call, its errors and its log lines, for every canary, credential and
// captured token in every form that package leaktest knows. Each of them must be
// found in what the fake received, and the session's id in what the plugin saw:
// otherwise the search would prove nothing, and says so.
package plugintest
