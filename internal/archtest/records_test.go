package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEveryDecisionRecordHasItsOwnNumberAndIsListedOnce(t *testing.T) {
	dir := filepath.Join(root, "docs", "adr")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.md$`)
	byNumber := map[string]string{}
	for _, entry := range entries {
		name := entry.Name()
		if name == "README.md" {
			continue
		}
		match := named.FindStringSubmatch(name)
		if match == nil {
			t.Errorf("%s is not named as NNNN-what-is-decided.md", name)
			continue
		}
		number := match[1]
		if other, taken := byNumber[number]; taken {
			t.Errorf("%s has the number of %s", name, other)
		}
		byNumber[number] = name
		if row := "| [" + number + "](" + name + ") |"; strings.Count(string(index), row) != 1 {
			t.Errorf("docs/adr/README.md does not list %s exactly once: a row begins %s", name, row)
		}
		record, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(record), "# "+number+": ") {
			t.Errorf("%s does not begin with \"# %s: \"", name, number)
		}
	}
	if listed := strings.Count(string(index), "\n| [0"); listed != len(byNumber) {
		t.Errorf("docs/adr/README.md lists %d records, and there are %d", listed, len(byNumber))
	}
}
