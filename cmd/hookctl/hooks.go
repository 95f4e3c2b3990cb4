package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/afterwrite/afterwrite/dispatcher/registry"
	"github.com/afterwrite/afterwrite/internal/flags"
)

type hooksCheck struct {
	Installed flags.Installed `embed:""`
	JSON      bool            `name:"json" help:"Print the report as one JSON object."`
}

// Run reports on the files, and is as expected only if everything in them would run.
func (c *hooksCheck) Run(std stdio) error {
	files, err := readInstalled(c.Installed)
	if err != nil {
		return err
	}
	report := registry.Check(files)
	if c.JSON {
		err = printLines(std.out, []*registry.Report{report})
	} else {
		err = printReport(std, report)
	}
	if err == nil && !report.Clean() {
		return errUnmet
	}
	return err
}

// readInstalled reads the files that the flags name, all of which must be given.
func readInstalled(f flags.Installed) (registry.Files, error) {
	if missing := f.Missing(); len(missing) > 0 {
		return registry.Files{}, errors.New(strings.Join(missing, " and ") + " must be given")
	}
	return registry.ReadFiles(f.Hooks, f.Profiles)
}

func printReport(std stdio, report *registry.Report) error {
	hooks := section{title: "Hooks", headings: []string{
		"HOOK", "FILE", "EVENT KINDS", "INTENT KINDS", "INVOCATIONS", "INTENTS", "BYTES", "TIMEOUT", "PROFILES",
	}}
	var problems []string
	for _, h := range report.Hooks {
		if len(h.EventKinds) == 0 {
			hooks.add(cmp.Or(h.HookID, "(unreadable)"), h.File, "rejected")
		} else {
			hooks.add(h.HookID, h.File, joined(h.EventKinds, " "), joined(h.IntentKinds, " "),
				strconv.Itoa(h.Budget.MaxInvocationsPerDispatch), strconv.Itoa(h.Budget.MaxIntentsPerDispatch),
				strconv.Itoa(h.Budget.MaxResultBytes), fmt.Sprintf("%dms", h.Budget.TimeoutMillis), joined(h.Profiles, " "))
		}
		for _, p := range h.Problems {
			problems = append(problems, "rejected: "+p)
		}
	}
	profiles := section{title: "Profiles", headings: []string{
		"PROFILE", "ENABLED", "HOOKS", "INTENTS A RECEIPT", "BYTES A RECEIPT", "ATTEMPTS", "RETRIES END AFTER",
	}}
	for _, p := range report.Profiles {
		profiles.add(p.Name, strconv.FormatBool(p.Enabled), joined(p.Hooks, " "), strconv.Itoa(p.IntentsPerReceipt),
			strconv.Itoa(p.ResultBytesPerReceipt), strconv.Itoa(p.MaxAttempts), p.RetryHorizon)
	}
	if err := printSections(std.out, false, hooks, profiles); err != nil {
		return err
	}
	for _, p := range report.Problems {
		problems = append(problems, "nothing would start: "+p)
	}
	if len(problems) == 0 {
		_, err := fmt.Fprintln(std.out, "\nAll of it would run.")
		return err
	}
	_, err := fmt.Fprintln(std.out, "\n"+strings.Join(problems, "\n"))
	return err
}
