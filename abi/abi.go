// Package abi is the wire contract between sbxhost and a provider plugin, major
// version sbx_v1: operations, imports, errnos, limits, and the JSON documents
// with their codecs. schema.json is its machine-readable source; the generated
// files follow from it.
//
// The package imports little and uses no reflection, since Go guests are
// compiled with it.
package abi

//go:generate go run ./internal/gen

// Module is the name of the import module. Its last part is the major version:
// whether a plugin fits is decided from its import section alone.
const Module = "sbx_v1"

// CallExport is the name of the function a plugin exports to run an operation.
const CallExport = "sbx_v1_call"

// Errno is a negative number that an import returns for an expected failure.
type Errno int32

// Op is an operation number, the argument of sbx_v1_call.
type Op int32

// Error returns the errno's name.
func (e Errno) Error() string {
	if s, ok := errnoNames[e]; ok {
		return s
	}
	return "E_UNKNOWN"
}

// String returns the operation's name, as plugin manifests spell it.
func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return "unknown"
}

// OpByName returns the operation with the given name.
func OpByName(name string) (Op, bool) {
	for o, s := range opNames {
		if s == name {
			return o, true
		}
	}
	return 0, false
}
