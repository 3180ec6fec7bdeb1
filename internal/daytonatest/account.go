package daytonatest

import "net/http"

func (c *call) config() {
	c.json(http.StatusOK, map[string]any{
		"version": "v" + string(c.s.opts.Release) + ".0", "oidc": map[string]any{"issuer": "http://" + c.s.addr + "/oidc", "clientId": "daytona", "audience": "daytona"},
		"linkedAccountsEnabled": false, "announcements": map[string]any{}, "proxyTemplateUrl": "http://{{PORT}}-{{sandboxId}}." + previewDomain,
		"proxyToolboxUrl": c.s.ToolboxURL(), "defaultSnapshot": defaultSnap, "dashboardUrl": "http://" + c.s.addr + "/dashboard",
		"maxAutoArchiveInterval": 43200, "maintananceMode": false, "environment": "test",
	})
}

func (c *call) currentKey() {
	now := c.s.Now().UTC().Format(timeFormat)
	c.json(http.StatusOK, map[string]any{"name": "test", "value": "dtn_" + "****" + c.s.key[max(len(c.s.key)-3, 0):], "createdAt": now,
		"permissions": []string{"write:sandboxes", "delete:sandboxes"}, "lastUsedAt": now, "expiresAt": nil, "userId": "user"})
}

func (c *call) organization() {
	c.with(func(*sandbox) (int, any) {
		now := c.s.Now().UTC().Format(timeFormat)
		return http.StatusOK, map[string]any{"id": c.s.org, "name": "Test", "createdBy": "user", "personal": true, "createdAt": now, "updatedAt": now,
			"suspended": false, "suspendedAt": now, "suspensionReason": "", "suspendedUntil": now, "suspensionCleanupGracePeriodHours": 24,
			"maxCpuPerSandbox": 4, "maxMemoryPerSandbox": 8, "maxDiskPerSandbox": 10, "secretQuota": 10, "maxSecretsPerSandbox": 10,
			"snapshotDeactivationTimeoutMinutes": 20160, "sandboxLimitedNetworkEgress": false, "previewWarningEnabled": false, "ssoEnabled": false,
			"authenticatedRateLimit": nil, "sandboxCreateRateLimit": nil, "sandboxLifecycleRateLimit": nil, "experimentalConfig": map[string]any{},
			"otelConfig": nil, "authenticatedRateLimitTtlSeconds": nil, "sandboxCreateRateLimitTtlSeconds": nil, "sandboxLifecycleRateLimitTtlSeconds": nil}
	})
}
