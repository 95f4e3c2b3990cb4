package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a process has used since it began.
type usage struct {
	// CPU in user and kernel.
	CPU time.Duration `json:"cpu_ns"`
	// Mallocs counts heap objects allocated.
	Mallocs uint64 `json:"mallocs"`
	// Heap is bytes of heap objects, garbage not yet collected included.
	Heap uint64 `json:"heap_bytes"`
	// PeakResident is the most memory that was resident, in bytes. 0 where the system does not tell.
	PeakResident int64 `json:"peak_resident_bytes"`
}

func ownUsage() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("read the process's usage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{
		CPU:          time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Mallocs:      m.Mallocs,
		Heap:         m.HeapAlloc,
		PeakResident: peakResident(),
	}, nil
}

// peakResident asks Linux about this process's own memory. getrusage would count what was before exec too.
func peakResident() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func ownGroup(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// profiles are being written.
type profiles struct {
	path string
	cpu  *os.File
}

// startProfiles profiles this process from now on, if a path is given.
func startProfiles(path string) (*profiles, error) {
	if path == "" {
		return &profiles{}, nil
	}
	runtime.MemProfileRate = 1 << 16 // finer than the default, so that every site of a dispatch is seen, and still cheap
	f, err := os.Create(path + ".cpu")
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	if err != nil {
		return nil, fmt.Errorf("write a CPU profile: %w", err)
	}
	return &profiles{path, f}, nil
}

func (p *profiles) stop() error {
	if p.path == "" {
		return nil
	}
	pprof.StopCPUProfile()
	if err := p.cpu.Close(); err != nil {
		return fmt.Errorf("write a CPU profile: %w", err)
	}
	f, err := os.Create(p.path + ".allocs")
	if err != nil {
		return fmt.Errorf("write an allocation profile: %w", err)
	}
	defer func() { _ = f.Close() }() // WriteTo has said what went wrong
	if err := pprof.Lookup("allocs").WriteTo(f, 0); err != nil {
		return fmt.Errorf("write an allocation profile: %w", err)
	}
	return nil
}
