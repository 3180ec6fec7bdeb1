package host

// Transport is how a caller wants protected values delivered.
type Transport string

const (
	// TransportAuto takes the least exposing transport that the provider
	// supports: exec before create. The zero value means the same.
	TransportAuto Transport = "auto"
	// TransportExec requires delivery to each workload process.
	TransportExec Transport = "exec"
	// TransportCreate requires delivery in the creation environment, which the
	// provider's own record shows.
	TransportCreate Transport = "create"
)
