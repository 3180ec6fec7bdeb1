//go:build !linux

package daytonatest

import (
	"errors"
	"net"
	"os"
	"os/exec"
)

// errNoJail says why there is no fake here.
var errNoJail = errors.New("the fake Daytona runs commands in Linux namespaces and needs Linux")

type jail struct {
	uid, gid   uint32
	home, user string
}

func jailAvailable() error                             { return errNoJail }
func startJail(string, string) (*jail, error)          { return nil, errNoJail }
func (*jail) kill() error                              { return nil }
func (*jail) root() string                             { return "" }
func (*jail) dial(int) (net.Conn, error)               { return nil, errNoJail }
func (*jail) listening() []int                         { return nil }
func (*jail) resolve(n string, _ bool) (string, error) { return n, errNoJail }
func (*jail) command(string, []string, string, ...string) *exec.Cmd {
	return exec.Command("false")
}
func unread(*os.File) int    { return 0 }
func killGroup(*exec.Cmd)    {}
func termGroup(*exec.Cmd)    {}
func killProcess(int)        {}
func inside(*exec.Cmd) []int { return nil }

func owner(os.FileInfo) (uid, gid uint32) { return 0, 0 }

func makePipe(string) (*os.File, error) { return nil, errNoJail }
