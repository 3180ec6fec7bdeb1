package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// serve answers "hello" to everybody, from when it has said so on.
func serve(address, ready string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, ready)
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.WriteString(c, "hello")
		_ = c.Close()
	}
}

// fetch prints what a server says, or that there is none within limit.
func fetch(address string, limit time.Duration) {
	c, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		fmt.Println("unreachable")
		return
	}
	_ = c.SetDeadline(time.Now().Add(limit))
	b, _ := io.ReadAll(c)
	fmt.Println(string(b))
}
