package signals

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dashboardFile = "../../dashboard/afterwrite.json"

// dashboard is what of Grafana's model the tests look at.
type dashboard struct {
	UID        string  `json:"uid"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
			AllValue   string `json:"allValue"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// filled is a query as Grafana sends it.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$namespace", ".*", "$hook", ".*").Replace(expr)
}

var variables = regexp.MustCompile(`\$\{?([A-Za-z_]+)`)

func TestEveryPanelShowsQueriesThatPrometheusTakes(t *testing.T) {
	d := readDashboard(t)
	known := []string{"__rate_interval", "__range"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
	}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s must ask the data source that was chosen", p.Title)
		}
		for i, target := range p.Targets {
			if want := string(rune('A' + i)); target.RefID != want {
				t.Errorf("%s: query %d must be %s, it is %s", p.Title, i, want, target.RefID)
			}
			if _, err := parse.ParseExpr(filled(target.Expr)); err != nil {
				t.Errorf("%s: %s: %v", p.Title, target.Expr, err)
			}
			for _, used := range variables.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(known, used[1]) {
					t.Errorf("%s asks for $%s, which nobody sets", p.Title, used[1])
				}
			}
		}
	}
}

func TestPanelsDoNotOverlapAndHaveTheirOwnIDs(t *testing.T) {
	const columns = 24
	taken := map[[2]int]string{}
	ids := map[int]string{}
	for _, p := range readDashboard(t).Panels {
		if other, is := ids[p.ID]; is {
			t.Errorf("%s and %s have one id", p.Title, other)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, is := taken[[2]int{x, y}]; is || x >= columns {
					t.Fatalf("%s is drawn over %q, or over the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
