package host

import (
	"errors"

	"github.com/sbxhost/sbxhost/grants"
	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
)

// Refusals are the errors found before a provider is touched. They keep their
// text, which names destinations, sources and settings and never a value.

func refusal(code provider.Code, op, message, remedy string) *provider.Error {
	return &provider.Error{Code: code, Op: op, Message: message, Remedy: remedy, Applied: provider.AppliedNo}
}

func invalid(op, message, remedy string) *provider.Error {
	return refusal(provider.InvalidArgument, op, message, remedy)
}

// failure gives an error of a package below the provider contract its code. The
// cause stays reachable: it is of this module and names no value.
func failure(op, providerName string, err error) error {
	if err == nil {
		return nil
	}
	code := provider.Internal
	var (
		ge *grants.Error
		me *manifest.Error
		pe *provider.Error
	)
	switch {
	case errors.As(err, &pe):
		return err
	case errors.As(err, &ge):
		code = grantCode(ge)
	case errors.As(err, &me):
		code = provider.InvalidArgument
	}
	return &provider.Error{Code: code, Op: op, Provider: providerName, Message: "refused", Err: err, Applied: provider.AppliedNo}
}

func grantCode(e *grants.Error) provider.Code {
	switch e.Kind {
	case grants.KindNotGranted, grants.KindNotSet, grants.KindNotSupplied, grants.KindInvalidBinding:
		return provider.NotGranted
	case grants.KindRefused:
		return provider.Unsupported
	case grants.KindMalformed, grants.KindConflict:
		return provider.InvalidArgument
	case grants.KindSource:
		if code := provider.CodeOf(errors.Unwrap(e)); code == provider.Canceled || code == provider.DeadlineExceeded {
			return code
		}
		return provider.Unavailable
	}
	return provider.Internal
}
