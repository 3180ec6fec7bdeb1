package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

const canary = "canary-7Hq2-value"

// with returns a Redactor that knows values under the names A, B, C, …. However
// long the test is kept waiting between two writes, nothing is let go meanwhile.
func with(values ...string) *redact.Redactor {
	return knowing(redact.Options{Idle: -1}, values...)
}

func knowing(opts redact.Options, values ...string) *redact.Redactor {
	r := redact.New(opts)
	for i, v := range values {
		r.Add(redact.Secret{Name: string(rune('A' + i)), Value: []byte(v)})
	}
	return r
}

// stream writes parts through a Writer and closes it.
func stream(t *testing.T, r *redact.Redactor, parts ...string) string {
	t.Helper()
	require.Negative(t, r.Idle(), "a pause between the parts would show")
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, p := range parts {
		n, err := w.Write([]byte(p))
		require.NoError(t, err)
		require.Equal(t, len(p), n)
	}
	require.NoError(t, w.Close())
	return out.String()
}

const pemKey = `-----BEGIN RSA PRIVATE KEY-----
MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu
KUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQJAIJLixBy2qpFoS4DSmoEm
o3qGy0t6z09AIJtH+5OeRV1be+N4cDYJKffGzDa88vQENZiRm0GRq6a+HPGQMd2k
-----END RSA PRIVATE KEY-----`

// Faults of other redactors, each with the right behaviour.
func TestRows(t *testing.T) {
	t.Parallel()
	rows := []struct {
		id   string
		test func(t *testing.T)
	}{
		{"R01-concourse-4656 empty and blank values make no needle", func(t *testing.T) {
			r := redact.New(redact.Options{})
			for _, v := range []string{"", "\n", " \t\r\n", `""`, "''"} {
				assert.NotEmpty(t, r.Add(redact.Secret{Name: "E", Value: []byte(v)}), "%q", v)
			}
			r.Add(redact.Secret{Name: "A", Value: []byte(canary + "\n")})
			assert.Equal(t, "ab [redacted:A]\ncd", r.String("ab "+canary+"\ncd"))
		}},
		{"R02-concourse-4749 structural lines mask nothing", func(t *testing.T) {
			r := with("{\n        \n----------\n  "+canary+"\n}", "block {\n  key "+canary+"2;\n\n}\n========\n")
			text := "{\n        \n----------\n}\n========\nblock { }"
			assert.Equal(t, text, r.String(text))
			assert.Equal(t, "[redacted:A]", r.String(canary))
		}},
		{"R03-concourse-9379 prefix secrets leave no tail and markers survive", func(t *testing.T) {
			r := with("passphrase", "passphrase-word")
			assert.Equal(t, "[redacted:B] [redacted:A]!", r.String("passphrase-word passphrase!"))
			r = with("redacted", canary)
			assert.Equal(t, "*** ***", r.String("redacted "+canary), "a needle occurs in the markers")
			r = redact.New(redact.Options{MinLen: 4})
			r.Add(redact.Secret{Name: "A", Value: []byte("redact")}, redact.Secret{Name: "B", Value: []byte(canary)})
			assert.Equal(t, "*** ***ed", r.String(canary+" redacted"))
		}},
		{"R04-concourse-4526 every split point", func(t *testing.T) {
			r := with(canary)
			text := "x" + canary + "y"
			for i := range text {
				assert.Equal(t, "x[redacted:A]y", stream(t, r, text[:i], text[i:]), i)
			}
		}},
		{"R05-concourse-9424 PEM armour is not masked by itself", func(t *testing.T) {
			r := with(pemKey)
			for _, line := range []string{"-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"} {
				assert.Equal(t, line+"\n", stream(t, r, line+"\n"))
			}
			assert.NotContains(t, r.String("key: KUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQJAIJLixBy2qpFoS4DSmoEm"), "KUpR")
			assert.Equal(t, "[redacted:A]", r.String(pemKey))
		}},
		{"R06-concourse-8477 events, argv and errors use the same set", func(t *testing.T) {
			r := with(canary)
			assert.Equal(t, "running sh -c 'echo [redacted:A]'", r.String("running sh -c 'echo "+canary+"'"))
			assert.EqualError(t, r.Error(errors.New("exec: "+canary)), "exec: [redacted:A]")
		}},
		{"R07-actions-291 echo piped to base64", func(t *testing.T) {
			r := with(canary)
			for _, suffix := range []string{"", "\n", "\r\n", "\n\n"} {
				for _, prefix := range []string{"", "k", "k=", "key", "key="} {
					for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
						text := enc.EncodeToString([]byte(prefix + canary + suffix))
						assert.Contains(t, r.String(text), "[redacted:A]", "%q %q", prefix, suffix)
					}
				}
			}
		}},
		{"R08-actions-326 one-character lines mask nothing, nor does their base64", func(t *testing.T) {
			r := with("e\nf\nY\n" + canary)
			text := "every effort: ZQ== Zg== WQ== Yes"
			assert.Equal(t, text, r.String(text))
		}},
		{"R09-actions-2232 leaves of a JSON secret", func(t *testing.T) {
			r := with(`{"user": "svc-backend-7", "nested": {"list": ["` + canary + `", 12]}, "on": true}`)
			assert.Equal(t, "login [redacted:A] with [redacted:A] { } true", r.String("login svc-backend-7 with "+canary+" { } true"))
			r = with("# settings\nexport USER_KEY='" + canary + "'\nMODE=fast\n")
			assert.Equal(t, "MODE=fast [redacted:A]", r.String("MODE=fast "+canary))
		}},
		{"R10-actions-161 every line of a multi-line value", func(t *testing.T) {
			r := with("first-line-of-it\n  second-line-of-it\nthird-line-of-it")
			for _, line := range []string{"first-line-of-it", "second-line-of-it", "third-line-of-it"} {
				assert.Equal(t, "> [redacted:A] <", r.String("> "+line+" <"))
			}
		}},
		{"R11-actions-159 an open Writer masks what was added just before the Write", func(t *testing.T) {
			r := with()
			var out bytes.Buffer
			w := r.Writer(&out)
			_, _ = io.WriteString(w, "start ")
			assert.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(canary)}))
			_, _ = io.WriteString(w, canary)
			require.NoError(t, w.Close())
			assert.Equal(t, "start [redacted:A]", out.String())
		}},
		{"R12-actions-2960 values with percent signs are taken as they are", func(t *testing.T) {
			v := "can%25ary%0Avalue%"
			r := with(v)
			assert.Equal(t, "[redacted:A]", r.String(v))
			assert.Equal(t, "[redacted:A]", r.String(url.QueryEscape(v)))
		}},
		{"R13-actions-1258 values with ampersands, at the end too", func(t *testing.T) {
			for _, v := range []string{"canary&value&+", "canary&+value&", "canary-value\\", "'canary'\"value\"`"} {
				r := redact.New(redact.Options{})
				require.Empty(t, r.Add(redact.Secret{Name: "A", Value: []byte(v)}), v)
				assert.Contains(t, r.String("x "+v+" y"), "[redacted:A]", v)
				assert.Empty(t, r.Contains([]byte(r.String("x "+v+" y"))), v)
			}
		}},
		{"R14-actions-2109 the name of what matched is told", func(t *testing.T) {
			r := with(canary, "another-canary-value")
			_, hits := r.Bytes([]byte(canary + " " + canary + " another-canary-value"))
			assert.Equal(t, redact.Hits{"A": 2, "B": 1}, hits)
			assert.Equal(t, []string{"A", "B"}, r.Contains([]byte("another-canary-value "+canary)))
			assert.Equal(t, redact.Hits{"A": 2, "B": 1}, r.Stats().Hits)
		}},
		{"R15-buildkite-2062 a multi-line key in any pieces", func(t *testing.T) {
			r := with(pemKey)
			for size := 1; size < len(pemKey); size += 7 {
				var parts []string
				for rest := "a\n" + pemKey + "\nb"; rest != ""; {
					n := min(size, len(rest))
					parts = append(parts, rest[:n])
					rest = rest[n:]
				}
				assert.Equal(t, "a\n[redacted:A]\nb", stream(t, r, parts...), size)
			}
		}},
		{"R16-buildkite-3233 lines joined by blanks", func(t *testing.T) {
			r := with("ab12\n  cd34\n\nef56 \ngh78")
			assert.Equal(t, "+ echo [redacted:A]", r.String("+ echo ab12 cd34 ef56 gh78"))
		}},
		{"R17-buildkite-f7e923c57 a terminal's CRLF", func(t *testing.T) {
			r := with(pemKey)
			assert.Equal(t, "[redacted:A]\r\n", r.String(strings.ReplaceAll(pemKey, "\n", "\r\n")+"\r\n"))
		}},
		{"R18-buildkite-3588 the floor holds on every path", func(t *testing.T) {
			r := redact.New(redact.Options{})
			assert.Len(t, r.Add(redact.Secret{Name: "A", Value: []byte("abc")}), 1)
			assert.Len(t, r.AddEnv(secret.NewEnv(map[string]secret.Value{"B": secret.FromString("abcde")})), 1)
			assert.Len(t, r.Add(redact.Secret{Name: "C", Value: []byte("xyz\nlong-enough-line"), Multi: true}), 1)
			assert.Len(t, r.Add(redact.Secret{Name: "D", Value: []byte("xyz"), NoForms: true}), 1)
			assert.Empty(t, r.Add(redact.Secret{Name: "E", Value: []byte(`{"k":"short12","l":"abc","m":"password"}`)}))
			text := "abc abcde xyz short12 password"
			assert.Equal(t, text, r.String(text))
		}},
		{"R19-buildkite-1228431c3 Go quoting and HTML-safe JSON", func(t *testing.T) {
			v := "can<ary>&\"val\x01ue\""
			r := with(v)
			assert.Equal(t, `x [redacted:A] y`, r.String(strings.ReplaceAll(fmt.Sprintf("x %q y", v), `"can`, `can`)[:len(fmt.Sprintf("x %q y", v))-4]+" y"))
			doc, err := json.Marshal(v)
			require.NoError(t, err)
			require.Contains(t, string(doc), `\u0026`)
			assert.Equal(t, `"[redacted:A]"`, r.String(string(doc)))
		}},
		{"R20-dagger-5791 nothing but a real beginning is held", func(t *testing.T) {
			r := redact.New(redact.Options{Idle: -1})
			for i := range 200 {
				r.Add(redact.Secret{Name: fmt.Sprintf("N%d", i), Value: fmt.Appendf(nil, "%s-%d%s", canary, i, strings.Repeat("z", 500))})
			}
			var out bytes.Buffer
			w := r.Writer(&out)
			_, _ = io.WriteString(w, "running the tests #\n")
			assert.Equal(t, "running the tests #\n", out.String())
			_, _ = io.WriteString(w, "now #canar")
			assert.Equal(t, "running the tests #\nnow #", out.String())
			require.NoError(t, w.Close())
		}},
		{"R21-dagger-8032 a trailing newline, and no needle is lost", func(t *testing.T) {
			r := with(canary+"\n", "other-canary-value\r\n", "aab-token-x", "aaab-token")
			assert.Equal(t, "[redacted:A]", r.String(canary))
			for _, n := range r.Raw() {
				assert.NotEmpty(t, r.Contains([]byte("#"+n.Text+"#")), n.Text)
			}
		}},
		{"R22-dagger-8475 log records", func(t *testing.T) {
			r := with(canary)
			var out bytes.Buffer
			log := slog.New(r.Handler(slog.NewJSONHandler(&out, nil)))
			log.Error("failed with "+canary, "key", canary, "err", errors.New(canary))
			assert.NotContains(t, out.String(), canary)
			assert.Equal(t, 3, strings.Count(out.String(), "[redacted:A]"))
		}},
		{"R23-jenkins-29-59 a secret in a secret, and shell traces", func(t *testing.T) {
			v := "canary'value\"with$quote"
			r := with(v, "value\"with$quote")
			assert.Equal(t, "[redacted:A] [redacted:B]", r.String(v+" value\"with$quote"))
			for _, shown := range []string{`'canary'\''value"with$quote'`, `'canary'"'"'value"with$quote'`, `$'canary\'value"with$quote'`,
				`canary\'value\"with\$quote`, `"canary'value\"with\$quote"`, `'canary''value"with$quote'`, `canary'value"with$$quote`} {
				masked := r.String("+ echo " + shown)
				assert.NotContains(t, masked, "value", shown)
				assert.NotContains(t, masked, "canary", shown)
			}
		}},
		{"R24-jenkins-284 a one-character value has no empty base64 form", func(t *testing.T) {
			r := redact.New(redact.Options{})
			assert.Len(t, r.Add(redact.Secret{Name: "A", Value: []byte("x")}), 1)
			assert.Zero(t, r.Stats().Needles)
			r.Add(redact.Secret{Name: "B", Value: []byte("abcd"), AllowShort: true})
			for _, n := range r.Raw() {
				assert.GreaterOrEqual(t, len(n.Text), 4)
				assert.True(t, n.Bound || len(n.Text) >= 8, n.Text)
			}
		}},
		{"R25-ansible-16125 common values are refused, short ones need a boundary", func(t *testing.T) {
			r := redact.New(redact.Options{})
			for _, v := range []string{"True", "admin", "localhost", "PASSWORD", "Production"} {
				no := r.Add(redact.Secret{Name: "A", Value: []byte(v)})
				require.Len(t, no, 1, v)
				assert.NotContains(t, no[0].Reason, v)
			}
			require.Empty(t, r.Add(redact.Secret{Name: "S", Value: []byte("orange")}))
			assert.Equal(t, "oranges True admin [redacted:S].", r.String("oranges True admin orange."))
		}},
		{"R26-pulumi-9330 the value before a rotation", func(t *testing.T) {
			r := with(canary)
			r.Retire("A")
			r.Add(redact.Secret{Name: "A", Value: []byte("rotated-canary-value")})
			assert.Equal(t, "[redacted:A] [redacted:A]", r.String(canary+" rotated-canary-value"))
			assert.Equal(t, 1, r.Stats().Retired)
		}},
		{"R27-vm0-16739 percent encoders of several minds", func(t *testing.T) {
			v := "can/ary:va*lue@x"
			r := with(v)
			for _, shown := range []string{"can%2Fary%3Ava%2Alue%40x", "can%2fary%3ava%2alue%40x", "can%2fary%3ava*lue%40x",
				"can%2Fary%3Ava*lue%40x", "can/ary%3Ava%2Alue%40x", url.PathEscape(v), url.UserPassword(v, "p").String()[:len(url.UserPassword(v, "p").String())-2]} {
				assert.Equal(t, "<[redacted:A]>", r.String("<"+shown+">"))
			}
		}},
		{"R28-paperclip-11037 redacted JSON lines parse", func(t *testing.T) {
			for _, v := range []string{`canary"value`, `canary\value`, `canary-value\`, `canary-value"`, `"canary-value`, `\canary-value`, "nightly-canary", "unicorn-canary", "tab\tcanary\nvalue"} {
				r := with(v)
				for _, content := range []string{v, "x" + v, "\n" + v, `\` + v, v + "\n", v + `\`, v + `"`, v + v, `\n` + v, "é" + v + "u"} {
					doc, err := json.Marshal(map[string]string{"k": content})
					require.NoError(t, err)
					masked := r.String(string(doc))
					assert.True(t, json.Valid([]byte(masked)), "%s became %s", doc, masked)
					assert.Empty(t, r.Contains([]byte(masked)), masked)
				}
			}
		}},
		{"R29-MCPJam-4469 cut secrets, and markers are inert", func(t *testing.T) {
			r := with(canary)
			assert.Equal(t, "error: [redacted:A]", r.String("error: "+canary[:11]))
			once := r.String("a " + canary + " b")
			assert.Equal(t, once, r.String(once))
			assert.Equal(t, once[:6], r.String("a " + canary + " b")[:6], "redact, then truncate")
		}},
		{"R30-shell-plugins-413 terminal sequences pass unchanged and at once", func(t *testing.T) {
			r := with(canary)
			screen := "\x1b[2J\x1b[H\x1b[1;32mhello\x1b[0m\r\n\x1b[?25l\x00\xff\xfe$ "
			var out bytes.Buffer
			w := r.Writer(&out)
			_, _ = io.WriteString(w, screen)
			assert.Equal(t, screen, out.String())
			require.NoError(t, w.Close())
		}},
		{"F1-pentect-1206 short values at token boundaries", func(t *testing.T) {
			r := redact.New(redact.Options{AllowShort: true, Idle: -1})
			assert.Len(t, r.Add(redact.Secret{Name: "A", Value: []byte("x9z")}), 1, "three bytes never")
			assert.Empty(t, r.Add(redact.Secret{Name: "B", Value: []byte("x9zk")}))
			assert.Equal(t, "x9zkk [redacted:B], ax9zk [redacted:B]", r.String("x9zkk x9zk, ax9zk x9zk"))
			for i := range "x9zk" {
				assert.Equal(t, "(x9zk1)([redacted:B])", stream(t, r, "(x9zk1)("+"x9zk"[:i], "x9zk"[i:], ")"))
			}
		}},
		{"F2-ModularPipelines-2994 refusals are reported", func(t *testing.T) {
			r := redact.New(redact.Options{})
			no := r.AddEnv(secret.NewEnv(map[string]secret.Value{"PIN": secret.FromString("1234"), "OK": secret.FromString(canary)}))
			require.Len(t, no, 1)
			assert.Equal(t, "PIN", no[0].Name)
			assert.Contains(t, no[0].Reason, "shorter than 6 bytes")
			assert.Equal(t, no, r.Unmaskable())
			assert.Equal(t, 1, r.Stats().Refused)
		}},
		{"F3-khive-2054 dense hits take linear time", func(t *testing.T) {
			r := with("abcdefgh", "bcdefgha", "cdefghab")
			start := time.Now()
			assert.Equal(t, "[redacted:A]", r.String(strings.Repeat("abcdefgh", 1<<16)))
			// Quadratic work on 200,000 overlapping hits would take many minutes.
			assert.Less(t, time.Since(start), time.Minute)
		}},
		{"F4-secrethub-267 probing with pauses shows three bytes, or a quarter up to sixteen, at most", func(t *testing.T) {
			for _, v := range []string{"canary-7H", "canary-7Hq2-va", canary, strings.Repeat("canary7Hq2", 10), strings.Repeat("canary7Hq2", 1000)} {
				r := redact.New(redact.Options{Idle: -1})
				r.Add(redact.Secret{Name: "A", Value: []byte(v)})
				var out bytes.Buffer
				w := r.Writer(&out)
				for i := range v {
					_, _ = io.WriteString(w, v[i:i+1])
					require.NoError(t, w.IdleNow())
				}
				require.NoError(t, w.Close())
				assert.Equal(t, v[:max(3, min(len(v)/4, 16))]+"[redacted:A]", out.String())
			}
		}},
		{"F5-gitlab-27559 a clean output is clean by its own scan", func(t *testing.T) {
			r := with(canary)
			out, _ := r.Bytes([]byte("log " + canary + " " + base64.StdEncoding.EncodeToString([]byte(canary))))
			assert.Empty(t, r.Contains(out))
			assert.Equal(t, int64(2), r.Stats().Hits["A"])
		}},
		{"N1-dagger a near miss right before the value", func(t *testing.T) {
			assert.Equal(t, "a[redacted:A]", stream(t, with("aab-token"), "aaab-token"))
		}},
		{"N2-dagger a longer value fails inside which another lies", func(t *testing.T) {
			r := redact.New(redact.Options{MinLen: 4, Idle: -1})
			r.Add(redact.Secret{Name: "A", Value: []byte("abcdefX")}, redact.Secret{Name: "B", Value: []byte("cdefgh")})
			assert.Equal(t, "ab[redacted:B]", stream(t, r, "abcdefgh"))
		}},
		{"N3-gitlab a near miss split over writes", func(t *testing.T) {
			assert.Equal(t, "a[redacted:A]", stream(t, with("aab-token"), "aa", "ab-token"))
			assert.Equal(t, "[redacted:A]", stream(t, with("aab-token"), "aa", "b-token"))
		}},
		{"N4-gitlab-dagger-drone-woodpecker partial overlap leaves nothing", func(t *testing.T) {
			r := redact.New(redact.Options{MinLen: 4, Idle: -1})
			r.Add(redact.Secret{Name: "A", Value: []byte("abcdef")}, redact.Secret{Name: "B", Value: []byte("defghi")})
			for i := range "abcdefghi" {
				assert.Equal(t, "[redacted:A]", stream(t, r, "abcdefghi"[:i], "abcdefghi"[i:]))
			}
			assert.Equal(t, "[redacted:A][redacted:B]", stream(t, r, "abcdefdefghi"), "adjacent ones stay apart")
		}},
		{"N5-woodpecker Write returns the length of its input", func(t *testing.T) {
			w := with(canary).Writer(io.Discard)
			n, err := io.WriteString(w, "x "+canary+canary+" y")
			require.NoError(t, err)
			assert.Equal(t, 4+2*len(canary), n)
			require.NoError(t, w.Close())
		}},
		{"N6-concourse bytes that are not UTF-8 are not held", func(t *testing.T) {
			var out bytes.Buffer
			w := with(canary).Writer(&out)
			_, _ = io.WriteString(w, "x\xff")
			assert.Equal(t, "x\xff", out.String())
			require.NoError(t, w.Close())
		}},
		{"N7-teller bytes that are not UTF-8 end nothing", func(t *testing.T) {
			assert.Equal(t, "a\n\xff\xfe\n[redacted:A]\nb\n", stream(t, with(canary), "a\n\xff\xfe\n"+canary+"\nb\n"))
		}},
		{"N8-buildkite lines printed with a prefix", func(t *testing.T) {
			r := with(pemKey)
			for i, line := range strings.Split(pemKey, "\n") {
				if !strings.HasPrefix(line, "-----") {
					assert.Equal(t, fmt.Sprintf("%d| [redacted:A]\n", i), r.String(fmt.Sprintf("%d| %s\n", i, line)))
				}
			}
		}},
		{"N9-all the beginning of a value at the end of the stream", func(t *testing.T) {
			r := with("hunter2secret-x")
			assert.Equal(t, "pw [redacted:A]", stream(t, r, "pw hunter2sec"))
			assert.Equal(t, "pw hunter2", stream(t, r, "pw hunter2"), "shorter than eight bytes")
			long := with(strings.Repeat("hunter2-secret-", 4))
			assert.Equal(t, "pw hunter2-secret-", stream(t, long, "pw hunter2-secret-"), "less than half")
		}},
		{"S8 a value inside a sentence", func(t *testing.T) {
			assert.Equal(t, "The key is [redacted:A], keep it.", with(canary).String("The key is "+canary+", keep it."))
		}},
	}
	for _, row := range rows {
		t.Run(row.id, func(t *testing.T) {
			t.Parallel()
			row.test(t)
		})
	}
}
