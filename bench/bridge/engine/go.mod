module github.com/sbxhost/sbxhost/plugin/benchbridge

go 1.26.0

replace github.com/sbxhost/sbxhost => ../../../

require (
	github.com/sbxhost/sbxhost v0.0.0
	github.com/tetratelabs/wazero v1.12.0
)

require golang.org/x/sys v0.50.0 // indirect
