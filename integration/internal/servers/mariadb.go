package servers

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

var mariadb = recipe{
	pkg:      "mariadb-server",
	service:  "mariadb",
	account:  "mysql",
	programs: []string{"mariadb-install-db", "mariadbd"},
	quit:     syscall.SIGKILL,
	initialize: func(folder string) []string {
		return []string{
			"mariadb-install-db", "--no-defaults", "--datadir=" + filepath.Join(folder, "data"),
			"--auth-root-authentication-method=normal", "--skip-test-db",
		}
	},
	serve: func(folder, port string, o Options) []string {
		flush := "2" // written at each commit, so that a kill loses nothing, without waiting for the disk
		if o.Fsync {
			flush = "1"
		}
		args := []string{
			"mariadbd", "--no-defaults", "--datadir=" + filepath.Join(folder, "data"),
			// A relative path can't be too long for a socket.
			"--socket=socket", "--pid-file=" + filepath.Join(folder, "pid"), "--port=" + port,
			"--bind-address=127.0.0.1", "--skip-name-resolve", "--character-set-server=utf8mb4",
			"--innodb-flush-log-at-trx-commit=" + flush, "--max-connections=300",
		}
		return append(args, settings(o, func(name, value string) []string {
			return []string{"--" + name + "=" + value}
		})...)
	},
	dsn:     func(addr string) string { return mariadbConfig(addr, "oncepipe").FormatDSN() },
	ask:     askMariaDB,
	release: func(string) error { return nil },
}

func mariadbConfig(addr, database string) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "root", "tcp", addr, database
	return cfg
}

func askMariaDB(ctx context.Context, addr string) (folder string, err error) {
	cfg := mariadbConfig(addr, "")
	cfg.Logger = &mysql.NopLogger{} // it isn't there yet when it is asked first
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS oncepipe"); err != nil {
		return "", err
	}
	var data string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data); err != nil {
		return "", err
	}
	return filepath.Dir(filepath.Clean(data)), nil
}
