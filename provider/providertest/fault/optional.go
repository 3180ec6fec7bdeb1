package fault

import (
	"bytes"
	"context"
	"io"

	"github.com/sbxhost/sbxhost/provider"
)

type ports struct {
	p     *Provider
	inner provider.Ports
}

func (o ports) Port(ctx context.Context, port int) (provider.Endpoint, error) {
	return invoke(ctx, o.p, Port, nil, func(ctx context.Context) (provider.Endpoint, error) { return o.inner.Port(ctx, port) })
}

type pauser struct {
	p     *Provider
	inner provider.Pauser
}

func (o pauser) Pause(ctx context.Context) error { return invokeErr(ctx, o.p, Pause, o.inner.Pause) }

func (o pauser) Resume(ctx context.Context) error { return invokeErr(ctx, o.p, Resume, o.inner.Resume) }

type archiver struct {
	p     *Provider
	inner provider.Archiver
}

// Export delivers one archive, however often it is made.
func (o archiver) Export(ctx context.Context, w io.Writer) error {
	var twice bool
	return invokeErr(ctx, o.p, Export, func(ctx context.Context) error {
		to := w
		if twice {
			to = io.Discard
		}
		twice = true
		return o.inner.Export(ctx, to)
	})
}

func (o archiver) Import(ctx context.Context, r io.Reader) error {
	again := repeatable(r)
	return invokeErr(ctx, o.p, Import, func(ctx context.Context) error { return o.inner.Import(ctx, again()) })
}

type logs struct {
	p     *Provider
	inner provider.Logs
}

// Logs delivers one log, however often it is read.
func (o logs) Logs(ctx context.Context, w io.Writer) error {
	var last *bytes.Buffer
	err := invokeErr(ctx, o.p, Logs, func(ctx context.Context) error {
		last = &bytes.Buffer{}
		return o.inner.Logs(ctx, last)
	})
	if err == nil && last != nil {
		_, err = last.WriteTo(w)
	}
	return err
}

// wrap returns a sandbox with exactly the optional interfaces of the one behind:
// callers discover them by type assertion.
func (p *Provider) wrap(inner provider.Sandbox, err error) (provider.Sandbox, error) {
	if err != nil || inner == nil {
		return nil, err
	}
	type (
		P = provider.Ports
		U = provider.Pauser
		A = provider.Archiver
		L = provider.Logs
	)
	sb := sandbox{p, inner}
	var (
		has        int
		po, pa, ar = ports{p: p}, pauser{p: p}, archiver{p: p}
		lo         = logs{p: p}
		ok         bool
	)
	if po.inner, ok = inner.(P); ok {
		has |= 1
	}
	if pa.inner, ok = inner.(U); ok {
		has |= 2
	}
	if ar.inner, ok = inner.(A); ok {
		has |= 4
	}
	if lo.inner, ok = inner.(L); ok {
		has |= 8
	}
	switch has {
	case 1:
		return struct {
			sandbox
			P
		}{sb, po}, nil
	case 2:
		return struct {
			sandbox
			U
		}{sb, pa}, nil
	case 3:
		return struct {
			sandbox
			P
			U
		}{sb, po, pa}, nil
	case 4:
		return struct {
			sandbox
			A
		}{sb, ar}, nil
	case 5:
		return struct {
			sandbox
			P
			A
		}{sb, po, ar}, nil
	case 6:
		return struct {
			sandbox
			U
			A
		}{sb, pa, ar}, nil
	case 7:
		return struct {
			sandbox
			P
			U
			A
		}{sb, po, pa, ar}, nil
	case 8:
		return struct {
			sandbox
			L
		}{sb, lo}, nil
	case 9:
		return struct {
			sandbox
			P
			L
		}{sb, po, lo}, nil
	case 10:
		return struct {
			sandbox
			U
			L
		}{sb, pa, lo}, nil
	case 11:
		return struct {
			sandbox
			P
			U
			L
		}{sb, po, pa, lo}, nil
	case 12:
		return struct {
			sandbox
			A
			L
		}{sb, ar, lo}, nil
	case 13:
		return struct {
			sandbox
			P
			A
			L
		}{sb, po, ar, lo}, nil
	case 14:
		return struct {
			sandbox
			U
			A
			L
		}{sb, pa, ar, lo}, nil
	case 15:
		return struct {
			sandbox
			P
			U
			A
			L
		}{sb, po, pa, ar, lo}, nil
	}
	return sb, nil
}
