// Package readme_test keeps the README true.
package readme_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/manifest"
)

func Example() {
	if err := os.Setenv("HOST_TOKEN", "s3cr3t-token-value"); err != nil {
		log.Fatal(err)
	}
	embed()
	// Output:
	// exit code 0, redactions map[SANDBOX_TOKEN:1]
	// hello, the token is [redacted:SANDBOX_TOKEN]
}

// The body of embed is the README's example.
func embed() {
	ctx := context.Background()

	h, err := host.New(host.Options{
		// Inside the sandbox SANDBOX_TOKEN, on the host HOST_TOKEN; nothing else.
		Grants: grants.Set{ProcessEnvironmentBindings: map[string]string{"SANDBOX_TOKEN": "HOST_TOKEN"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = h.Close(ctx) }()

	p, err := local.New(local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := h.RegisterTrusted("local", p); err != nil {
		log.Fatal(err)
	}

	// The manifest only names the secret; it could be stored or sent anywhere.
	m := manifest.New()
	m.Environment = map[string]manifest.Entry{
		"GREETING":      {Literal: "hello"},
		"SANDBOX_TOKEN": {Reference: &manifest.Reference{Name: "HOST_TOKEN"}},
	}
	s, err := h.Create(ctx, host.CreateRequest{Provider: "local", Manifest: m})
	if err != nil {
		log.Fatal(err)
	}
	r, err := s.Exec(ctx, host.ExecRequest{Shell: `echo "$GREETING, the token is $SANDBOX_TOKEN"`})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("exit code %d, redactions %v\n%s", r.ExitCode, r.Redactions, r.Stdout)
	// exit code 0, redactions map[SANDBOX_TOKEN:1]
	// hello, the token is [redacted:SANDBOX_TOKEN]
}
