package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// A command gets a secret that the host granted; what comes back is redacted.
// The in-memory provider stands in for a real one: local.New, docker.New, …
func Example() {
	ctx := context.Background()

	h, err := host.New(host.Options{
		// Inside the sandbox API_TOKEN, on the host HOST_TOKEN; nothing else.
		Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"API_TOKEN": "HOST_TOKEN"}},
		// Without Source values come from this process's environment.
		Source: grants.MapSource(map[string]string{"HOST_TOKEN": "s3cr3t-token-value"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = h.Close(ctx) }()
	if err := h.RegisterTrusted("memory", fake.New(fake.Options{})); err != nil {
		log.Fatal(err)
	}

	m := manifest.New()
	m.Environment = map[string]manifest.Entry{
		"GREETING":  {Literal: "hello"},
		"API_TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN", Description: "token for api.example.com"}},
	}
	s, err := h.Create(ctx, host.CreateRequest{Provider: "memory", Manifest: m})
	if err != nil {
		log.Fatal(err)
	}
	r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$GREETING, the token is $API_TOKEN"`})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("exit code %d, redactions %v\n%s", r.ExitCode, r.Redactions, r.Stdout)
	// Output:
	// exit code 0, redactions map[API_TOKEN:1]
	// hello, the token is [redacted:API_TOKEN]
}
