package host_test

import (
	"context"
	"testing"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/host"
	"github.com/sbxhost/sbxhost/provider/fake"
)

// What the host adds to a provider that takes no time itself.
func BenchmarkHost(b *testing.B) {
	ctx := context.Background()
	h, err := host.New(host.Options{Grants: tokenGrant(), Source: grants.MapSource(map[string]string{"HOST_TOKEN": tokenCanary})})
	if err != nil {
		b.Fatal(err)
	}
	p := fake.New(fake.Options{})
	if err := h.RegisterTrusted("fake", p); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Close(ctx) }()
	m := protected()
	b.Run("create and close", func(b *testing.B) {
		for b.Loop() {
			s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	p.Forget()
	b.Run("exec", func(b *testing.B) {
		s, err := h.Create(ctx, host.CreateRequest{Provider: "fake", Manifest: m})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := s.Exec(ctx, host.ExecRequest{Args: []string{"true"}}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
