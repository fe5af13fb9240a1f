package servers

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

var postgres = recipe{
	pkg:      "postgresql",
	service:  "postgresql",
	account:  "postgres",
	programs: []string{"initdb", "postgres"},
	// An immediate shutdown: it ends busy backends too, which wouldn't notice for a
	// while that the first process was killed, and gives back the shared memory.
	quit: syscall.SIGQUIT,
	initialize: func(folder string) []string {
		return []string{
			"initdb", "-D", filepath.Join(folder, "data"), "-U", "postgres", "-A", "trust",
			"-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
		}
	},
	serve: func(folder, port string, o Options) []string {
		fsync := "off"
		if o.Fsync {
			fsync = "on"
		}
		args := []string{
			"postgres", "-D", filepath.Join(folder, "data"), "-p", port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			"-c", "fsync=" + fsync, "-c", "max_connections=300",
		}
		return append(args, settings(o, func(name, value string) []string {
			return []string{"-c", name + "=" + value}
		})...)
	},
	dsn:     postgresDSN,
	ask:     askPostgres,
	release: releasePostgres,
}

func postgresDSN(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

func askPostgres(ctx context.Context, addr string) (folder string, err error) {
	conn, err := pgx.Connect(ctx, postgresDSN(addr))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return "", err
	}
	return filepath.Dir(data), nil
}
