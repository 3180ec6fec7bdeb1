package main

import (
	"context"
	"errors"
	"strings"

	"github.com/sbxhost/sbxhost/builtin/daytona"
	"github.com/sbxhost/sbxhost/internal/config"
	"github.com/sbxhost/sbxhost/provider"
)

// daytonaChecks are key present, service reachable, and permissions. Without a key
// and a configuration the first is a note, and nobody is asked: nobody has to use
// the service.
func daytonaChecks(ctx context.Context, c config.Daytona) []check {
	const name = "daytona provider"
	key, err := daytonaKey(ctx, c)
	if err != nil {
		out := failedCheck(name, err)
		if c == (config.Daytona{}) {
			out.Status = statusNote
		}
		return []check{out}
	}
	opts := daytonaOptions(c, key)
	opts.CallTimeout = patience
	p, err := daytona.New(opts)
	if err != nil {
		return []check{failedCheck(name, err)}
	}
	checks := []check{{name, statusOK, "key from " + c.KeyName() + ", service at " + p.Endpoint() + ", transport " + p.Describe().Transports[0].String(), nil}}
	timed, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	account, err := p.Check(timed)
	var pe *provider.Error
	if errors.As(err, &pe) && pe.Code == provider.PermissionDenied {
		return append(checks, check{"daytona service", statusOK, "reachable", nil}, failedCheck("daytona key", err))
	}
	if err != nil {
		return append(checks, failedCheck("daytona service", err))
	}
	checks = append(checks, check{"daytona service", statusOK, "reachable", nil})
	if len(account.Missing) > 0 {
		return append(checks, check{"daytona key", statusFail, "the key lacks " + strings.Join(account.Missing, ", "),
			[]string{"make a key with these permissions and put it into " + c.KeyName()}})
	}
	return append(checks, check{"daytona key", statusOK, "may make and destroy sandboxes", nil})
}

// failedCheck shows a provider's error.
func failedCheck(name string, err error) check {
	out := check{Name: name, Status: statusFail, Detail: err.Error()}
	var pe *provider.Error
	if errors.As(err, &pe) {
		out.Detail = pe.Message
		if pe.Remedy != "" {
			out.Fix = []string{pe.Remedy}
		}
	}
	return out
}
