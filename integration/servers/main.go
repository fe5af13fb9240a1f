//go:build linux

// Command servers runs a command beside private PostgreSQL, MariaDB and Redis
// servers:
//
//	go run ./integration/servers -- go test ./integration/...
//
// The command finds their addresses in its environment: ONCEPIPE_POSTGRES
// (postgres://…), ONCEPIPE_MYSQL (a DSN of go-sql-driver) and ONCEPIPE_REDIS
// (redis://…). An address that is there already is left alone and no server is
// started for it. ONCEPIPE_SKIP=mysql,redis does without those kinds, and says
// so. Programs that are missing are installed from Debian's or Ubuntu's packages
// when we are root; a server that can't be had is an error.
//
// Without a command it prints the addresses and waits for Ctrl-C.
//
// It ends with the command's exit code, 1 where a server can't be had, 2 for
// wrong arguments, and 128 and the signal's number where the command died of
// one. SIGINT, SIGTERM and SIGHUP go to the command. Servers, their data and the
// command's processes end with it, also when it, or the make or go run that
// started it, is killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

const usage = `usage: servers [-fsync] [-- COMMAND ARGUMENT...]
Runs COMMAND beside PostgreSQL, MariaDB and Redis; without one, prints their addresses and waits.
`

func main() {
	// The command is bound to the life of the thread that starts it.
	runtime.LockOSThread()
	if os.Args[0] == guardName {
		os.Exit(guard(os.Stdin))
	}
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run does it all and returns the exit code.
func run(args []string, log io.Writer) int {
	flags := flag.NewFlagSet("servers", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() { fmt.Fprint(log, usage); flags.PrintDefaults() }
	fsync := flags.Bool("fsync", false, "wait for the disk at each commit; for benchmarks")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	// With room for an impatient person's Ctrl-C, Ctrl-C.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	j := &job{log: log, fsync: *fsync, signals: signals, orphaned: watchParents(ctx)}
	code, err := j.run(ctx, flags.Args())
	if err := errors.Join(err, j.end()); err != nil {
		fmt.Fprintln(log, "servers:", err)
		code = max(code, 1)
	}
	return code
}
