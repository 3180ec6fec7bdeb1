// Package daytona makes sandboxes on a Daytona service, through its control API
// and the toolbox of each sandbox. It is a REST client of its own; no SDK.
//
// # Values
//
// With the exec transport, protected values and request secrets travel in the
// field envs of the one POST /process/execute that runs the command, and from
// there into the environment of that process tree. They are in no label, name,
// file, session, terminal or later answer of the service. A daemon that would
// ignore the field is found out before anything is started.
//
// With the create transport they are in env of POST /sandbox. The service then
// shows them to whoever has an API key of the organization, keeps them for a day
// after the sandbox is gone, and bakes them into snapshots.
//
// # Commands
//
// A command is started by exactly one request, which no proxy can repeat: its
// body is chunked, and a marker in the sandbox lets a second copy of it do
// nothing. Output goes through files of the sandbox, byte for byte and apart, and
// is delivered while the command runs; they are removed when it has ended. When
// the answer of the request is lost, so is the command's outcome: it is never run
// again, and never reported as success.
//
// # Endpoints
//
// Requests, and the API key with them, go to the configured address and to
// toolbox addresses that belong to it, nowhere else, whatever a stored reference
// or an answer says. No redirect is followed.
//
// # Trust
//
// Whoever holds an API key of the organization can run commands in its sandboxes.
// A signed preview URL of any port opens all of them, the toolbox included
// (measured on v0.190): Endpoint.Secret says so.
package daytona

import (
	"net/http"
	"time"

	"github.com/sbxhost/sbxhost/secret"
)

// DefaultAPIURL is the control API of the hosted service.
const DefaultAPIURL = "https://app.daytona.io/api"

// Options configure a Provider. APIKey is required.
type Options struct {
	// APIURL is the address of the control API, such as
	// https://app.daytona.io/api. Default: DefaultAPIURL. Plain http is accepted
	// for loopback addresses only.
	APIURL string
	// APIKey authenticates to the control API and to toolboxes.
	APIKey secret.Value
	// OrganizationID is sent with each request. It is needed when APIKey is a
	// JWT; the service ignores it for other keys. Default: none.
	OrganizationID string
	// Target is the region of new sandboxes. Default: the organization's.
	Target string
	// ToolboxURL is where toolboxes are reached when the service is set up so
	// that their host is neither that of APIURL nor below it. Default: only
	// such hosts are accepted.
	ToolboxURL string
	// Snapshot is used for manifests that name no image. Default: the service's.
	Snapshot string
	// AutoStop is how long a sandbox may be unused before the service stops it,
	// in whole minutes, as a guard against what nobody destroys; a running
	// command counts as use. Default: 60 minutes. Negative: never.
	AutoStop time.Duration
	// Heartbeat is how often use is reported while a command runs. Default: a
	// third of AutoStop, at most 5 minutes.
	Heartbeat time.Duration
	// CallTimeout bounds each request but those that run commands or move
	// files. Default: 60 s.
	CallTimeout time.Duration
	// CreateTimeout bounds building and starting together. Default: 15 minutes.
	CreateTimeout time.Duration
	// DestroyTimeout bounds how long Destroy waits until the service confirms
	// that a sandbox is gone. Default: 2 minutes.
	DestroyTimeout time.Duration
	// PortTTL is how long a port's signed URL is valid; 1 s to 24 h. Default: 1 h.
	PortTTL time.Duration
	// Transport makes the connections. Default: one like http.DefaultTransport.
	// It must not follow redirects or repeat requests.
	Transport http.RoundTripper
}

// Settings as they are spelled in the command's configuration; errors name them.
const (
	SettingAPIURL     = "daytona.apiUrl"
	SettingAPIKey     = "daytona.apiKey"
	SettingToolboxURL = "daytona.toolboxUrl"
	SettingTarget     = "daytona.target"
)
