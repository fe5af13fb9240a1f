package main

import (
	"errors"
	"fmt"
	"os"
)

// aSync is what all commits wait for.
const aSync = "write and fsync of 4 kB"

// syncedFile is a file that is synced at each write.
type syncedFile struct {
	f    *os.File
	page []byte
}

func newSyncedFile(dir string) (*syncedFile, error) {
	f, err := os.CreateTemp(dir, "oncepipe-bench-")
	if err != nil {
		return nil, fmt.Errorf("file to sync: %w", err)
	}
	return &syncedFile{f: f, page: make([]byte, 4096)}, nil
}

func (s *syncedFile) append() error {
	if _, err := s.f.Write(s.page); err != nil {
		return err
	}
	return s.f.Sync()
}

func (s *syncedFile) close() error { return errors.Join(s.f.Close(), os.Remove(s.f.Name())) }
