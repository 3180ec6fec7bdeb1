package envpolicy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/builtin/local/envpolicy"
)

func TestBlockedByName(t *testing.T) {
	t.Parallel()
	cases := []struct {
		id      string
		names   string
		blocked bool
	}{
		{"E1", "OPENAI_API_KEY ANTHROPIC_API_KEY LANGFUSE_SECRET_KEY GITHUB_TOKEN AWS_SECRET_ACCESS_KEY DB_PASSWORD MY_SERVICE_CREDENTIAL", true},
		{"E3", "DATABASE_URL REDIS_URL MONGODB_URI AMQP_URL CONN_STR GH_PAT", true},
		{"E4", "SENTRY_DSN POSTGRES_DSN", true},
		{"E6", "DB_PASS SMTP_PASS MYSQL_PASS REDIS_PASS FTP_PASS MAIL_PASS", true},
		{"E12 names", "MYSQL_URL MYSQL_PWD REDISCLI_AUTH", true},
		{"each glob", "A_KEY_B A_SECRET_B TOKENS PASSPHRASE CREDENTIALS DSN_X SSH_AUTH_SOCK MY_COOKIE_JAR MYJWT X_PAT X_PWD", true},
		{"any case", "openai_api_key Github_Token database_url gh_pat mysql_pwd", true},
		{"prefixed connection strings", "STAGING_DATABASE_URL APP_REDIS_URL MY_CONNECTION_STRING", true},
		{"E9", "PATH HOME SHELL USER LANG LC_ALL TMPDIR VIRTUAL_ENV PYTHONPATH DEERFLOW_PLAIN_VAR", false},
		{"E11", "NEXT_PUBLIC_BASE_URL SERVICE_ENDPOINT", false},
		{"E12 PWD itself", "PWD OLDPWD", false},
		{"no suffix in the middle", "X_PATH X_PATTERN PWD_X PATIENT", false},
	}
	for _, c := range cases {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			for _, name := range strings.Fields(c.names) {
				reason, blocked := envpolicy.Blocked(name, "plain")
				assert.Equal(t, c.blocked, blocked, name)
				assert.Equal(t, c.blocked, reason != "", name)
			}
		})
	}
}

func TestBlockedByValue(t *testing.T) {
	t.Parallel()
	blocked := []string{
		"https://user:canary-pw@example.com/",
		"https://canary-token@example.com",
		"postgres://u:canary/pw@db:5432/x",
		"first http://example.com then ftp://u:canary@h",
		"http://example.com,redis://:canary@h:6379",
		"x://@h",
	}
	for _, v := range blocked {
		reason, is := envpolicy.Blocked("SERVICE_ENDPOINT", v)
		assert.True(t, is, v)
		assert.NotContains(t, reason, "canary")
	}
	for _, v := range []string{
		"", "plain", "user@example.com", "https://example.com", "https://example.com:8443/a?b#c",
		"https://example.com/@user", "https://example.com:80/@user", "https://example.com/?q=a@b",
		"https://example.com mail a@b", "://", "a://b://c",
	} {
		_, is := envpolicy.Blocked("SERVICE_ENDPOINT", v)
		assert.False(t, is, v)
	}
}

func names(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		out = append(out, name)
	}
	return out
}

func TestFilter(t *testing.T) {
	t.Parallel()
	host := []string{
		"PATH=/bin", "HOME=/root", "LANG=C", "LC_ALL=C", "LC_TIME=C", "TZ=UTC", "TERM=xterm", "PWD=/x",
		"PLAIN_VAR=plain", "OTHER_VAR=other", "OPENAI_API_KEY=canary",
		"MYSQL_URL=canary", "MYSQL_PWD=canary", "REDISCLI_AUTH=canary", "PROXY=http://u:canary@p",
		"=C:=C:\\", "broken",
	}
	t.Run("only the allow-list without configuration", func(t *testing.T) {
		t.Parallel()
		kept, dropped := envpolicy.Filter(host, nil)
		assert.Equal(t, []string{"PATH=/bin", "LANG=C", "LC_ALL=C", "LC_TIME=C", "TZ=UTC", "TERM=xterm"}, kept)
		assert.Empty(t, dropped)
	})
	t.Run("L2 and L5 a configured plain variable passes", func(t *testing.T) {
		t.Parallel()
		kept, dropped := envpolicy.Filter(host, []string{"PLAIN_VAR"})
		assert.Contains(t, kept, "PLAIN_VAR=plain")
		assert.NotContains(t, names(kept), "OTHER_VAR")
		assert.Empty(t, dropped)
	})
	t.Run("L4 and E15 a platform key does not pass, configured or not", func(t *testing.T) {
		t.Parallel()
		for _, allow := range [][]string{nil, {"OPENAI_API_KEY"}} {
			kept, dropped := envpolicy.Filter(host, allow)
			assert.NotContains(t, names(kept), "OPENAI_API_KEY")
			assert.Equal(t, allow, dropped)
		}
	})
	t.Run("E12 connection names are dropped and PWD stays", func(t *testing.T) {
		t.Parallel()
		kept, dropped := envpolicy.Filter(host, []string{"MYSQL_URL", "MYSQL_PWD", "REDISCLI_AUTH", "PWD", "PROXY"})
		assert.Contains(t, kept, "PWD=/x")
		assert.Equal(t, []string{"MYSQL_PWD", "MYSQL_URL", "PROXY", "REDISCLI_AUTH"}, dropped)
		assert.NotContains(t, strings.Join(kept, " "), "canary")
	})
	t.Run("E14 an injected token comes on top", func(t *testing.T) {
		t.Parallel()
		kept, _ := envpolicy.Filter(host, []string{"PLAIN_VAR", "OPENAI_API_KEY"})
		env := append(kept, "GITHUB_TOKEN=injected")
		assert.Subset(t, env, []string{"PATH=/bin", "PLAIN_VAR=plain", "GITHUB_TOKEN=injected"})
		assert.NotContains(t, names(env), "OPENAI_API_KEY")
	})
	t.Run("configured names are exact", func(t *testing.T) {
		t.Parallel()
		kept, _ := envpolicy.Filter(host, []string{"*", "PLAIN_*", "plain_var"})
		assert.NotContains(t, names(kept), "PLAIN_VAR")
	})
	t.Run("the last of a repeated name counts", func(t *testing.T) {
		t.Parallel()
		kept, dropped := envpolicy.Filter([]string{"TZ=A", "LANG=https://u:canary@h", "TZ=B", "LANG=C"}, nil)
		assert.Equal(t, []string{"TZ=B", "LANG=C"}, kept)
		assert.Empty(t, dropped)
	})
	t.Run("arguments are not changed", func(t *testing.T) {
		t.Parallel()
		in, allow := []string{"TZ=1", "X=1", "LANG=2"}, []string{"X"}
		kept, _ := envpolicy.Filter(in, allow)
		require.Len(t, kept, 3)
		kept[0] = "changed"
		assert.Equal(t, []string{"TZ=1", "X=1", "LANG=2"}, in)
		assert.Equal(t, []string{"X"}, allow)
	})
}
