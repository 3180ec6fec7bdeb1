// Command static is the only program of a test image without a shell.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "the image's own command")
		select {}
	}
	switch args[0] {
	case "exit":
		n, _ := strconv.Atoi(args[1])
		os.Exit(n)
	case "print":
		fmt.Print(args[1])
		fmt.Fprint(os.Stderr, args[2])
	case "args":
		for _, a := range args[1:] {
			fmt.Print(a + "\x00")
		}
	case "env":
		v, ok := os.LookupEnv(args[1])
		if !ok {
			os.Exit(3)
		}
		fmt.Print(v)
	case "environ":
		fmt.Print(strings.Join(os.Environ(), "\x00") + "\x00")
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "dir":
		d, _ := os.Getwd()
		fmt.Println(d)
	case "append":
		f, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			os.Exit(1)
		}
		_, _ = fmt.Fprintln(f, args[2])
		_ = f.Close()
	case "sleep":
		fmt.Print(args[1])
		n, _ := strconv.Atoi(args[2])
		time.Sleep(time.Duration(n) * time.Second)
	case "serve":
		serve(args[1], "token="+os.Getenv("TOKEN")+" literal="+os.Getenv("LITERAL")+" uid="+strconv.Itoa(os.Getuid()))
	case "fetch":
		limit, _ := time.ParseDuration(args[2])
		fetch(args[1], limit)
	}
}
