package providertest

import (
	"slices"

	"github.com/sbxhost/sbxhost/provider"
)

// allChecks returns every check, in order.
func allChecks(h *Harness) []check {
	return slices.Concat(describeChecks(), lifecycleChecks(), createChecks(), listChecks(), destroyChecks(),
		execChecks(), stdinChecks(), timeoutChecks(), killChecks(), backgroundChecks(), ttyChecks(),
		envChecks(), secretChecks(), fileChecks(), cancelChecks(), volumeChecks(), optionalChecks(),
		matrixChecks(h), leakChecks())
}

// declared needs something of the description.
func declared(what string, has func(d provider.Description) bool) need {
	return func(s *suite) (Status, string) {
		if has(s.d) {
			return "", ""
		}
		return Undeclared, "Describe does not declare " + what
	}
}

// undeclared is for checks that what is not declared is refused.
func undeclared(what string, has func(d provider.Description) bool) need {
	return func(s *suite) (Status, string) {
		if !has(s.d) {
			return "", ""
		}
		return Undeclared, "nothing to refuse: Describe declares " + what
	}
}

// probe needs something of the harness.
func probe(what string, has func(h *Harness) bool) need {
	return func(s *suite) (Status, string) {
		if has(s.h) {
			return "", ""
		}
		return Unproven, "the harness does not give " + what
	}
}

var (
	canList = probe("a provider that can list", func(h *Harness) bool { return !h.CannotList })

	execTransport = declared("the exec transport",
		func(d provider.Description) bool { return d.Offers(provider.TransportExec) })
	createTransport = declared("the create transport",
		func(d provider.Description) bool { return d.Offers(provider.TransportCreate) })
	anyTransport = declared("a transport", func(d provider.Description) bool { return len(d.Transports) > 0 })

	canKill    = declared("exec.kill", func(d provider.Description) bool { return d.Exec.Kill != provider.KillNone })
	killsTree  = declared("exec.kill tree", func(d provider.Description) bool { return d.Exec.Kill == provider.KillTree })
	stdinLive  = declared("exec.stdin live", func(d provider.Description) bool { return d.Exec.Stdin == provider.StdinLive })
	stdinGiven = declared("exec.stdin upfront", func(d provider.Description) bool { return d.Exec.Stdin != provider.StdinNone })
	streams    = declared("exec.stream", func(d provider.Description) bool { return d.Exec.Stream })
	background = declared("exec.backgroundSafe", func(d provider.Description) bool { return d.Exec.BackgroundSafe })
	terminal   = declared("exec.tty", func(d provider.Description) bool { return d.Exec.TTY })

	printEnv   = probe("Commands.PrintEnv", func(h *Harness) bool { return h.Commands.PrintEnv != nil })
	printSleep = probe("Commands.PrintSleep", func(h *Harness) bool { return h.Commands.PrintSleep != nil })
	appends    = probe("Commands.Append", func(h *Harness) bool { return h.Commands.Append != nil })
	cat        = probe("Commands.Cat", func(h *Harness) bool { return h.Commands.Cat != nil })
	children   = probe("Commands.Background", func(h *Harness) bool { return h.Commands.Background != nil })
	waiting    = probe("Commands.Foreground", func(h *Harness) bool { return h.Commands.Foreground != nil })
	survivors  = probe("Survivors", func(h *Harness) bool { return h.Survivors != nil })
	realShell  = probe("a real shell", func(h *Harness) bool { return h.RealShell && h.Commands.Script != nil })
)
