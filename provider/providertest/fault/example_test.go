package fault_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/provider/providertest/fault"
)

// An answer that is lost: the sandbox is there, and the caller cannot know.
func Example() {
	ctx := context.Background()
	p := fault.New(fake.New(fake.Options{}))
	p.Set(fault.Rule{Method: fault.Create, Kind: fault.Drop})
	_, err := p.Create(ctx, request(1))
	fmt.Println(provider.CodeOf(err), provider.AppliedOf(err), errors.Is(err, provider.ErrUnavailable))
	list, err := p.List(ctx, provider.Query{})
	fmt.Println(len(list), err)
	// Output:
	// Unavailable unknown true
	// 1 <nil>
}
