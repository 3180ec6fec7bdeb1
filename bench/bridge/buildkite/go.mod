module github.com/buildkite/agent/v3/benchbridge

go 1.26.0

require github.com/buildkite/agent/v3 v3.104.0
