package plugintest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Status is how a check went.
type Status string

// The statuses of checks.
const (
	Passed      Status = "passed"
	Failed      Status = "failed"
	NotDeclared Status = "not declared" // the manifest does not claim it
	NotProved   Status = "not proved"   // what was given does not suffice to tell
	Skipped     Status = "skipped"      // not asked for
)

// Check is the outcome of one check.
type Check struct {
	Name   string `json:"name"`
	Rule   string `json:"rule,omitempty"`
	Status Status `json:"status"`
	// Reasons say what failed, or why there was nothing to pass.
	Reasons []string `json:"reasons,omitempty"`
	// Notes are figures and the like.
	Notes    []string      `json:"notes,omitempty"`
	Duration time.Duration `json:"durationNs"`
}

// Report is the outcome of a run. It holds no value.
type Report struct {
	Plugin      string               `json:"plugin"`
	Version     string               `json:"version"`
	Kind        string               `json:"kind"`
	Digest      string               `json:"digest"`
	Operations  []string             `json:"operations"`
	Description provider.Description `json:"description"`
	Checks      []Check              `json:"checks"`
}

// OK reports whether no check failed and at least one passed.
func (r *Report) OK() bool { return len(r.With(Failed)) == 0 && len(r.With(Passed)) > 0 }

// With returns the checks that have the status, in order.
func (r *Report) With(s Status) []Check {
	var out []Check
	for _, c := range r.Checks {
		if c.Status == s {
			out = append(out, c)
		}
	}
	return out
}

// Find returns a check by name.
func (r *Report) Find(name string) (Check, bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return Check{}, false
}

// Summary is one line.
func (r *Report) Summary() string {
	s := fmt.Sprintf("plugin %s: %d checks passed, %d failed", r.Plugin, len(r.With(Passed)), len(r.With(Failed)))
	for _, st := range []Status{NotDeclared, NotProved, Skipped} {
		if n := len(r.With(st)); n > 0 {
			s += fmt.Sprintf(", %d %s", n, st)
		}
	}
	return s
}

// WriteText writes the report for people: every check that did not pass with its
// reason, and the summary. With all the passed ones are listed too.
func (r *Report) WriteText(w io.Writer, all bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, %s, %s\n", r.Plugin, r.Version, r.Kind, r.Digest)
	for _, st := range []Status{Passed, NotDeclared, NotProved, Failed} {
		if st == Passed && !all {
			continue
		}
		for _, c := range r.With(st) {
			fmt.Fprintf(&b, "%-12s  %s", c.Status, c.Name)
			for _, n := range c.Notes {
				fmt.Fprintf(&b, " (%s)", n)
			}
			for _, why := range c.Reasons {
				fmt.Fprintf(&b, "\n%14s%s", "", strings.ReplaceAll(why, "\n", "\n"+strings.Repeat(" ", 14)))
			}
			if c.Status == Failed && c.Rule != "" {
				fmt.Fprintf(&b, "\n%14srule: %s", "", c.Rule)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString(r.Summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the report as one JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML, one suite per section. Checks that
// were not declared or not proved are skipped test cases.
func (r *Report) WriteJUnit(w io.Writer) error {
	var out junitSuites
	at := map[string]int{}
	total := map[string]time.Duration{}
	for _, c := range r.Checks {
		section, _, _ := strings.Cut(c.Name, "/")
		i, ok := at[section]
		if !ok {
			i = len(out.Suites)
			at[section] = i
			out.Suites = append(out.Suites, junitSuite{Name: r.Plugin + "." + section})
		}
		s := &out.Suites[i]
		jc := junitCase{Class: s.Name, Name: c.Name, Time: seconds(c.Duration)}
		text := printable(strings.Join(c.Reasons, "\n"))
		first, _, _ := strings.Cut(text, "\n")
		switch c.Status {
		case Passed:
		case Failed:
			jc.Failure = &junitMessage{Message: first, Text: text + "\nrule: " + c.Rule}
			s.Failures++
			out.Failures++
		default:
			jc.Skipped = &junitMessage{Message: string(c.Status) + ": " + first}
			s.Skipped++
			out.Skipped++
		}
		s.Tests++
		out.Tests++
		total[section] += c.Duration
		s.Time = seconds(total[section])
		s.Cases = append(s.Cases, jc)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// printable drops what XML 1.0 cannot hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
