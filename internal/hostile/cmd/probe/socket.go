//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/internal/hostile"
)

// dialTimeout bounds one connection attempt. Whoever answers may be on a busy machine;
// what is refused is so at once.
const dialTimeout = 20 * time.Second

func socketAttempts() []attempt {
	families := []struct {
		name            string
		domain, typ, pr int
	}{
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"netlink-route", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		{"netlink-audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		{"netlink-uevent", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		{"packet-dgram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300},
		{"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"key", unix.AF_KEY, unix.SOCK_RAW, 2},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1},
		{"can", unix.AF_CAN, unix.SOCK_RAW, 1},
		{"tipc", unix.AF_TIPC, unix.SOCK_RDM, 0},
		{"rds", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{"qipcrtr", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0},
		{"kcm", unix.AF_KCM, unix.SOCK_DGRAM, 0},
		{"smc", unix.AF_SMC, unix.SOCK_STREAM, 0},
		{"nfc", unix.AF_NFC, unix.SOCK_SEQPACKET, 0},
		{"ax25", unix.AF_AX25, unix.SOCK_SEQPACKET, 0},
		{"pppox", unix.AF_PPPOX, unix.SOCK_DGRAM, 0},
	}
	var list []attempt
	for _, f := range families {
		list = append(list, attempt{"socket-" + f.name, func(*hostile.Config) hostile.Result {
			fd, err := unix.Socket(f.domain, f.typ|unix.SOCK_CLOEXEC, f.pr)
			_ = unix.Close(fd)
			return judge(err, "socket")
		}})
	}
	return append(list,
		attempt{"socket-vsock-high-bits", func(*hostile.Config) hostile.Result {
			// The kernel looks at 32 bits of the family, a careless filter at 64.
			return judge(call(unix.SYS_SOCKET, 1<<32|unix.AF_VSOCK, unix.SOCK_STREAM, 0), "socket")
		}},
		attempt{"socket-netlink-high-bits", func(*hostile.Config) hostile.Result {
			return judge(call(unix.SYS_SOCKET, 1<<32|unix.AF_NETLINK, unix.SOCK_RAW, 0), "socket")
		}},
		attempt{"socketpair-vsock", func(*hostile.Config) hostile.Result {
			var p [2]int32
			return judge(call(unix.SYS_SOCKETPAIR, unix.AF_VSOCK, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&p))), "socketpair")
		}},
		attempt{"unix-abstract", func(c *hostile.Config) hostile.Result { return dialUnix("@" + c.AbstractSocket) }},
		attempt{"unix-abstract-high-bits", func(c *hostile.Config) hostile.Result {
			fd, err := callValue(unix.SYS_SOCKET, 1<<32|unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return judge(err, "socket")
			}
			return judge(unix.Connect(int(fd), &unix.SockaddrUnix{Name: "@" + c.AbstractSocket}), "connected")
		}},
		attempt{"unix-abstract-dgram", func(c *hostile.Config) hostile.Result {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return judge(err, "socket")
			}
			return judge(unix.Sendto(fd, []byte("probe"), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: "@" + c.AbstractSocket + "-dgram"}), "sent")
		}},
		attempt{"unix-abstract-bind", func(c *hostile.Config) hostile.Result {
			// A name taken by the host is EADDRINUSE only in the host's namespace.
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return judge(err, "socket")
			}
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + c.AbstractSocket})
			if err == nil {
				return refused("the name is free here: another namespace")
			}
			return judge(err, "bind", unix.EADDRINUSE)
		}},
		attempt{"unix-path", func(c *hostile.Config) hostile.Result { return dialUnix(c.PathSocket) }},
		attempt{"unix-path-symlink", func(c *hostile.Config) hostile.Result {
			if c.PathSocket == "" {
				return broken("no socket configured")
			}
			link := scratch("socket")
			if err := os.Symlink(c.PathSocket, link); err != nil {
				return broken("symlink: %v", err)
			}
			_ = os.Chdir("/")
			return dialUnix("/proc/self/root" + link)
		}},
		attempt{"unix-well-known", func(*hostile.Config) hostile.Result {
			for _, p := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/stdout", "/dev/log"} {
				if r := dialUnix(p); r.Outcome == hostile.Succeeded {
					return r
				}
			}
			return refused("none answered")
		}},
		attempt{"tcp-host-loopback", func(c *hostile.Config) hostile.Result {
			return each(only(c.TCP, true), "TCP loopback listener", dialTCP)
		}},
		attempt{"tcp-host-address", func(c *hostile.Config) hostile.Result {
			return each(only(c.TCP, false), "TCP listener", dialTCP)
		}},
		attempt{"tcp-fastopen", func(c *hostile.Config) hostile.Result {
			return each(c.TCP, "TCP listener", fastOpen)
		}},
		attempt{"udp-host-loopback", func(c *hostile.Config) hostile.Result {
			return each(only(c.UDP, true), "UDP loopback listener", func(a string) hostile.Result { return echoUDP(a, "probe") })
		}},
		attempt{"udp-host-address", func(c *hostile.Config) hostile.Result {
			return each(only(c.UDP, false), "UDP listener", func(a string) hostile.Result { return echoUDP(a, "probe") })
		}},
		attempt{"dns", func(c *hostile.Config) hostile.Result {
			// A question for the name canary, recursion desired.
			question := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06canary\x07invalid\x00\x00\x01\x00\x01"
			return each(c.UDP, "UDP listener", func(addr string) hostile.Result { return echoUDP(addr, question) })
		}},
		attempt{"host-interfaces", func(c *hostile.Config) hostile.Result {
			if c.HostInterface == "" {
				return broken("no interface configured")
			}
			for _, f := range []string{"/proc/self/net/dev", "/proc/net/dev", "/proc/1/net/dev"} {
				if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), c.HostInterface+":") {
					return succeeded("%s is in %s", c.HostInterface, f)
				}
			}
			if _, err := os.Stat("/sys/class/net/" + c.HostInterface); err == nil {
				return succeeded("%s is in /sys", c.HostInterface)
			}
			return refused("not to be seen")
		}},
		attempt{"host-sockets-listed", func(c *hostile.Config) hostile.Result {
			if c.AbstractSocket == "" {
				return broken("no socket configured")
			}
			for _, f := range []string{"/proc/self/net/unix", "/proc/net/unix", "/proc/1/net/unix"} {
				if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), c.AbstractSocket) {
					return succeeded("listed in %s", f)
				}
			}
			return refused("not listed")
		}},
	)
}

// only keeps the loopback addresses, or the others.
func only(addresses []string, loopback bool) []string {
	var out []string
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if err == nil && net.ParseIP(host).IsLoopback() == loopback {
			out = append(out, a)
		}
	}
	return out
}

func dialUnix(name string) hostile.Result {
	if name == "" || name == "@" {
		return broken("no socket configured")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return judge(err, "socket")
	}
	defer func() { _ = unix.Close(fd) }()
	return judge(unix.Connect(fd, &unix.SockaddrUnix{Name: name}), "connected to "+name)
}

func dialTCP(addr string) hostile.Result {
	conn, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err == nil {
		_ = conn.Close()
	}
	return judge(underlying(err), "connected to "+addr)
}

// fastOpen connects by sendto, which is no connect() to a filter or hook.
func fastOpen(addr string) hostile.Result {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return broken("%v", err)
	}
	domain, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16())})
	if v4 := a.IP.To4(); v4 != nil {
		domain, sa = unix.AF_INET, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(v4)}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return judge(err, "socket")
	}
	defer func() { _ = unix.Close(fd) }()
	tv := unix.NsecToTimeval(int64(dialTimeout))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	err = unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, sa)
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EAGAIN) {
		return refused("no answer")
	}
	return judge(err, "sent to "+addr)
}

func echoUDP(addr, text string) hostile.Result {
	conn, err := net.DialTimeout("udp", addr, dialTimeout)
	if err != nil {
		return judge(underlying(err), "udp to "+addr)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	if _, err := conn.Write([]byte(text)); err != nil {
		return judge(underlying(err), "sent to "+addr)
	}
	var b [16]byte
	_, err = conn.Read(b[:])
	return judge(underlying(err), "echo from "+addr)
}
