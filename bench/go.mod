module github.com/sbxhost/sbxhost/bench

go 1.26.0

replace (
	github.com/buildkite/agent/v3/benchbridge => ./bridge/buildkite
	github.com/sbxhost/sbxhost => ../
	github.com/sbxhost/sbxhost/plugin/benchbridge => ./bridge/engine
)

require (
	github.com/extism/go-pdk v1.1.3
	github.com/extism/go-sdk v1.7.1
	github.com/hashicorp/go-hclog v1.6.3
	github.com/hashicorp/go-plugin v1.8.0
	github.com/knqyf263/go-plugin v0.9.0
	github.com/sbxhost/sbxhost v0.0.0
	github.com/sbxhost/sbxhost/plugin/benchbridge v0.0.0
	github.com/tetratelabs/wazero v1.12.0
	golang.org/x/sys v0.50.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require github.com/buildkite/agent/v3 v3.104.0 // indirect

require (
	github.com/BobuSumisu/aho-corasick v1.0.3
	github.com/buildkite/agent/v3/benchbridge v0.0.0
	github.com/cloudflare/ahocorasick v0.0.0-20240916140611-054963ec9396
	github.com/coregx/ahocorasick v0.3.1
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/fatih/color v1.13.0 // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/hashicorp/yamux v0.1.2 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/mattn/go-colorable v0.1.12 // indirect
	github.com/mattn/go-isatty v0.0.17 // indirect
	github.com/oklog/run v1.1.0 // indirect
	github.com/petar-dambovaliev/aho-corasick v0.0.0-20250424160509-463d218d4745
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	go.opentelemetry.io/proto/otlp v1.7.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
