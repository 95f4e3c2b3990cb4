package periodicreport

import (
	"errors"
	"strconv"

	"github.com/afterwrite/afterwrite/events"
)

// refuse says which member of a document breaks which rule. It repeats no value.
func refuse(member, rule string) error {
	return &events.DecodeError{Fault: events.FaultValue, Path: member, Rule: rule}
}

// under puts the member before the path of a refusal of something inside it.
func under(member string, err error) error {
	refused := (*events.DecodeError)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	at := *refused
	switch {
	case at.Path == "":
		at.Path = member
	case at.Path[0] == '[':
		at.Path = member + at.Path
	default:
		at.Path = member + "." + at.Path
	}
	return &at
}

func index(member string, i int) string { return member + "[" + strconv.Itoa(i) + "]" }
