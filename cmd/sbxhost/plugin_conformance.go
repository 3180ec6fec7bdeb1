package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sbxhost/sbxhost/plugin/plugintest"
)

func (a *app) pluginTestCommand() *cobra.Command {
	var (
		fake, junit, commands string
		only                  []string
		matrix, all           bool
	)
	cmd := &cobra.Command{
		Use:   "test MODULE [--fake COMMAND] [--commands FILE]",
		Short: "Run the conformance kit against a plugin",
		Long: `Runs every check that the plugin's manifest makes applicable against a fake of the
vendor's API: each operation, each failure of the host and of the vendor, limits,
cancellation, and the proof that no value reaches a byte the plugin can see. What
the manifest does not declare, and what could not be proved with what was given, is
said and does not count as passed. Exit code 1 if a check fails.

The fake is a program made with the package plugin/plugintest/fakevendor. Its
command line is split at blanks. A plugin without origins needs none.

The kit runs /bin/sh in the sandboxes. For a plugin whose sandboxes have no shell,
--commands names a JSON file with what they know instead, as in
{"exit":["exit","{code}"],"print":["say","{stdout}","{stderr}"]}; further keys are
printArgs {args}, printEnv {name}, cat, dir, readFile {file}, append {file} {line},
printSleep {text} {seconds} {marker}, spam {bytes}.`,
		Example: `  sbxhost plugin test demo.wasm --fake "go run ./fake"
  sbxhost plugin test demo.wasm --fake ./demo-fake --junit report.xml
  sbxhost plugin test demo.wasm --fake ./demo-fake --only taint/
  sbxhost plugin test demo.wasm --fake ./demo-fake --matrix > CAPABILITIES.md`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: files("wasm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if matrix && a.json {
				return usageError("--matrix and --json exclude each other")
			}
			if _, err := a.loadConfig(); err != nil {
				return err
			}
			module, err := readModule(args[0])
			if err != nil {
				return err
			}
			o := plugintest.Options{Module: module, FakeCommand: fakeCommand(fake), Only: only}
			if commands != "" {
				doc, err := os.ReadFile(commands)
				if err != nil {
					return fmt.Errorf("read the commands: %w", err)
				}
				if o.Words, err = plugintest.ParseWords(doc); err != nil {
					return err
				}
			}
			if _, tty := terminal(a.stderr); tty && !a.json {
				o.Progress = func(c plugintest.Check) { a.note("%-12s %s", c.Status, c.Name) }
			}
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			rep, err := plugintest.Run(ctx, o)
			if ctx.Err() != nil {
				return exit(exitInterrupted)
			}
			if err != nil {
				return err
			}
			if junit != "" {
				if err := writeJUnit(junit, rep); err != nil {
					return err
				}
			}
			switch {
			case a.json:
				err = rep.WriteJSON(a.stdout)
			case matrix:
				_, err = fmt.Fprint(a.stdout, rep.Matrix())
			default:
				err = rep.WriteText(a.stdout, all)
			}
			if err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			if !rep.OK() {
				return exit(exitFailedCheck)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&fake, "fake", "", "`COMMAND` that runs the fake of the vendor")
	fl.StringVar(&commands, "commands", "", "`FILE` with the commands that sandboxes without a shell know")
	fl.StringVar(&junit, "junit", "", "write a JUnit XML report to `FILE`")
	fl.StringArrayVar(&only, "only", nil, "run the checks whose names start with `PREFIX` (repeatable)")
	fl.BoolVar(&matrix, "matrix", false, "print the capability matrix in Markdown")
	fl.BoolVar(&all, "all", false, "list the checks that passed too")
	must(cmd.RegisterFlagCompletionFunc("junit", files("xml")))
	must(cmd.RegisterFlagCompletionFunc("commands", files("json")))
	return cmd
}

// fakeCommand splits a command line at blanks, unless all of it is a file.
func fakeCommand(s string) []string {
	if info, err := os.Stat(s); err == nil && !info.IsDir() {
		return []string{s}
	}
	return strings.Fields(s)
}

func writeJUnit(path string, rep *plugintest.Report) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	err = rep.WriteJUnit(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	return nil
}
