package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
)

// allowPrivateKey marks a request whose origin may resolve to a private address.
type allowPrivateKey struct{}

// dialer resolves each host once, checks the addresses and connects to exactly
// those from then on: a name that resolves differently the second time gains
// nothing.
type dialer struct {
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	mu     sync.Mutex
	pinned map[string][]netip.Addr
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, failure(abi.ErrnoInvalid, "malformed address")
	}
	private, _ := ctx.Value(allowPrivateKey{}).(bool)
	addrs, err := d.lookup(ctx, host, private)
	if err != nil {
		return nil, err
	}
	var last error
	for _, a := range addrs {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return c, nil
		}
		last = err
	}
	if !private && ctx.Err() == nil {
		// A vendor may have moved. What the name resolves to next is checked
		// again; where private addresses are allowed nothing would check it.
		d.mu.Lock()
		delete(d.pinned, host)
		d.mu.Unlock()
	}
	return nil, &dialError{last}
}

// dialError marks a failure before anything was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "connect: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

func (d *dialer) lookup(ctx context.Context, host string, private bool) ([]netip.Addr, error) {
	d.mu.Lock()
	addrs, ok := d.pinned[host]
	d.mu.Unlock()
	if !ok {
		if a, err := netip.ParseAddr(host); err == nil {
			addrs = []netip.Addr{a}
		} else if addrs, err = d.resolve(ctx, host); err != nil {
			return nil, &dialError{failure(abi.ErrnoNetwork, "the host name does not resolve")}
		}
	}
	if len(addrs) == 0 {
		return nil, &dialError{failure(abi.ErrnoNetwork, "the host name has no address")}
	}
	for _, a := range addrs {
		// One bad address refuses the name: it would be a matter of luck which
		// is used.
		if !private && !Public(a) {
			return nil, &Denied{Rule: "the host resolves to an address that is not public"}
		}
	}
	if !ok {
		d.mu.Lock()
		if prior, raced := d.pinned[host]; raced {
			addrs = prior
		} else if len(d.pinned) < 4096 {
			d.pinned[host] = slices.Clone(addrs)
		}
		d.mu.Unlock()
	}
	return addrs, nil
}

var nonPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network, RFC 1122
	netip.MustParsePrefix("100.64.0.0/10"),    // shared address space, RFC 6598
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments, RFC 6890
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation, RFC 5737
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarking, RFC 2544
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation, RFC 5737
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation, RFC 5737
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, RFC 1112
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's host services
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays, RFC 7526
	netip.MustParsePrefix("::/96"),            // IPv4-compatible, RFC 4291
	netip.MustParsePrefix("::ffff:0:0:0/96"),  // translated, RFC 2765
	netip.MustParsePrefix("3fff::/20"),        // documentation, RFC 9637
	netip.MustParsePrefix("5f00::/16"),        // segment routing, RFC 9602
	netip.MustParsePrefix("64:ff9b:1::/48"),   // local-use translation, RFC 8215
	netip.MustParsePrefix("100::/64"),         // discard, RFC 6666
	netip.MustParsePrefix("2001:db8::/32"),    // documentation, RFC 3849
	netip.MustParsePrefix("fec0::/10"),        // site-local, RFC 3879
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixto4 = netip.MustParsePrefix("2002::/16")    // RFC 3056
	teredo = netip.MustParsePrefix("2001::/32")    // RFC 4380
)

// Public reports whether an address is one of the public internet: not loopback,
// private, link-local (which holds the cloud metadata services), multicast or
// reserved, also not as the target of a translation prefix.
func Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsInterfaceLocalMulticast() {
		return false
	}
	for _, p := range nonPublic {
		if p.Contains(a) {
			return false
		}
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return Public(netip.AddrFrom4([4]byte(b[12:16])))
	case sixto4.Contains(a):
		return Public(netip.AddrFrom4([4]byte(b[2:6])))
	case teredo.Contains(a):
		return false
	}
	return true
}
