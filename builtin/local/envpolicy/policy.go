// Package envpolicy decides which variables of the host's environment a local
// sandbox inherits. Two nets: a name must be on a short allow-list, and even
// then it is dropped when its name or its value looks like a credential. The
// policy concerns inherited variables only; what a manifest or a request sets
// is not judged here.
package envpolicy

import (
	"slices"
	"strings"
)

// DefaultAllowed returns the names that are inherited without configuration.
// An entry that ends in * stands for every name with that prefix. The caller
// owns the slice.
func DefaultAllowed() []string { return []string{"PATH", "LANG", "LC_*", "TZ", "TERM"} }

// contains, within a name, marks a credential.
var contains = []string{"KEY", "SECRET", "TOKEN", "PASS", "CREDENTIAL", "DSN", "AUTH", "COOKIE", "JWT"}

// suffixes, at the end of a name, mark a credential.
var suffixes = []string{"_PAT", "_PWD"}

// connections are the names that by custom hold connection strings, alone or
// after a prefix and an underscore (STAGING_DATABASE_URL).
var connections = []string{
	"DATABASE_URL", "DATABASE_URI", "DB_URL", "DB_URI",
	"POSTGRES_URL", "POSTGRES_URI", "POSTGRESQL_URL", "POSTGRESQL_URI", "PG_URL", "PG_URI",
	"MYSQL_URL", "MYSQL_URI", "MARIADB_URL", "MARIADB_URI", "MSSQL_URL", "MSSQL_URI",
	"MONGODB_URL", "MONGODB_URI", "MONGO_URL", "MONGO_URI",
	"REDIS_URL", "REDIS_URI", "VALKEY_URL", "VALKEY_URI",
	"AMQP_URL", "AMQP_URI", "RABBITMQ_URL", "RABBITMQ_URI", "CLOUDAMQP_URL",
	"KAFKA_URL", "NATS_URL", "BROKER_URL", "CLICKHOUSE_URL",
	"ELASTICSEARCH_URL", "ELASTIC_URL", "OPENSEARCH_URL",
	"CONN_STR", "CONNSTR", "CONNECTION_STRING", "CONNECTION_URL", "CONNECTION_URI",
}

// Blocked reports whether a variable must not be inherited, and why. The reason
// never contains the value. Names are judged without regard to case.
func Blocked(name, value string) (reason string, blocked bool) {
	upper := strings.ToUpper(name)
	for _, s := range contains {
		if strings.Contains(upper, s) {
			return "the name contains " + s, true
		}
	}
	for _, s := range suffixes {
		if strings.HasSuffix(upper, s) {
			return "the name ends in " + s, true
		}
	}
	for _, c := range connections {
		if upper == c || strings.HasSuffix(upper, "_"+c) {
			return "the name is that of a connection string", true
		}
	}
	if hasUserInfo(value) {
		return "the value holds a URL with user information", true
	}
	return "", false
}

// hasUserInfo reports whether value contains scheme://user@host anywhere. A
// password with an unescaped slash (scheme://user:a/b@host) counts.
func hasUserInfo(value string) bool {
	for {
		_, rest, ok := strings.Cut(value, "://")
		if !ok {
			return false
		}
		value = rest
		word := rest
		if i := strings.IndexAny(rest, " \t\r\n\"'<>"); i >= 0 {
			word = rest[:i]
		}
		authority, after := word, ""
		if i := strings.IndexAny(word, "/?#"); i >= 0 {
			authority, after = word[:i], word[i:]
		}
		if strings.Contains(authority, "@") {
			return true
		}
		// "user:start-of-password" rather than "host:port".
		if _, port, ok := strings.Cut(authority, ":"); ok && strings.Contains(after, "@") && !isPort(port) {
			return true
		}
	}
}

func isPort(s string) bool {
	return len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

// Filter chooses from environ, entries NAME=VALUE as os.Environ returns them,
// what a sandbox inherits: the names of DefaultAllowed and of allow (exact
// names; nothing is expanded), less what Blocked refuses. It returns the kept
// entries in their order, of repeated names the last as exec does, and the
// sorted names that were allowed but blocked, so that the user can be told. It
// does not change its arguments.
func Filter(environ, allow []string) (kept, dropped []string) {
	last := map[string]int{}
	for i, kv := range environ {
		if name, _, ok := strings.Cut(kv, "="); ok && name != "" {
			last[name] = i
		}
	}
	for i, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || last[name] != i || !allowed(name, allow) {
			continue
		}
		if _, blocked := Blocked(name, value); blocked {
			dropped = append(dropped, name)
			continue
		}
		kept = append(kept, kv)
	}
	slices.Sort(dropped)
	return kept, dropped
}

func allowed(name string, configured []string) bool {
	for _, a := range DefaultAllowed() {
		prefix, glob := strings.CutSuffix(a, "*")
		if name == a || glob && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains(configured, name)
}
