package fake_test

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/provider/fake"
	"github.com/sbxhost/sbxhost/secret"
)

// A program of the embedder's own, and proof of what reached it.
func Example() {
	p := fake.New(fake.Options{Commands: map[string]fake.Command{
		"greet": func(_ context.Context, proc *fake.Proc) int {
			name, _ := proc.Getenv("NAME")
			_, _ = fmt.Fprintf(proc.Stdout(), "hello %s\n", name)
			return 0
		},
	}})
	ctx := context.Background()
	sb, err := p.Create(ctx, newRequest())
	if err != nil {
		fmt.Println(err)
		return
	}
	token := secret.FromString("s3cr3t-token-value")
	var out bytes.Buffer
	proc, err := sb.Exec(ctx, provider.ExecRequest{
		ID: "1", Args: []string{"greet"}, Env: map[string]string{"NAME": "world"},
		Protected: secret.NewEnv(map[string]secret.Value{"TOKEN": token}),
		Stdout:    &out, Stderr: io.Discard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	exit, _ := proc.Wait(ctx)
	fmt.Print(out.String())
	fmt.Println(exit.Kind, exit.Code)
	record, _ := p.Record(sb.Ref())
	fmt.Println("reached the process:", p.Execs()[0].Got("TOKEN", token))
	fmt.Println("stored in:", record.Find(token))
	fmt.Println(p.Destroy(ctx, sb.Ref()))
	// Output:
	// hello world
	// exited 0
	// reached the process: true
	// stored in: []
	// <nil>
}
