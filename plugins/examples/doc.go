// Package examples holds complete provider plugins, one a folder. Each has a
// README, a manifest, an HTTP fake of its vendor and a Makefile; the tests here
// build them all and run the provider conformance kit on them.
//
//	e2b          Go, sealed: streamed exec, live input, files, captured tokens
//	runloop      Go, sealed: polled exec with cumulative output
//	flymachines  Rust, sealed: plain JSON exec
//	memory       C, plugin-driven: no network, no protected transport
package examples
