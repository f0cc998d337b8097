package console_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"touchline/agent/access"
	"touchline/agent/console"
	"touchline/agent/region"
)

func TestRegionsByAPI(t *testing.T) {
	t.Parallel()
	regions, err := region.NewSet(region.Config{})
	require.NoError(t, err)
	picture, users := region.Picture{}, []string(nil)
	regions.Attach(func() region.Picture { return picture }, func(string) []string { return users }, func() {})
	r := open(t, console.Options{Room: console.Room{Name: "final", Bot: newDesk(), Regions: regions}})
	const shape = `"points":[[0,0],[0.5,0],[0,0.5]]`

	tests := []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/api/regions", "", 200, `{"regions":[],"mask_delayed":false}`},
		{"PUT", "/api/regions/door", `{"kind":"mask",` + shape + `}`, 409, "no_picture"},
		{"PUT", "/api/regions/door", `{"kind":"mask","aspect":1.7778,` + shape + `}`, 200, "Viewers of the room still see this"},
		{"PUT", "/api/regions/a%20yard", `{"kind":"zone","aspect":1.7778,` + shape + `}`, 200, `"name":"a yard"`},
		{"PUT", "/api/rooms/final/regions/a%20yard", `{"name":"door","kind":"zone","aspect":1.7778,` + shape + `}`, 409, "name_taken"},
		{"PUT", "/api/regions/bow", `{"kind":"mask","aspect":2,"points":[[0,0],[1,1],[1,0],[0,1]]}`, 422, "crosses the edge"},
		{"DELETE", "/api/regions/none", "", 404, "no_region"},
		{"POST", "/api/regions", "", 409, "no_picture"},
	}
	for _, tt := range tests {
		a := r.ask(tt.method, tt.path, tt.body)
		require.Equal(t, tt.status, a.status, "%s %s: %s", tt.method, tt.path, a.body)
		require.Contains(t, string(a.body), tt.want, "%s %s", tt.method, tt.path)
	}
	users = []string{"Somebody comes", "r2"}
	a := r.ask("DELETE", "/api/regions/a%20yard", "")
	require.Equal(t, 409, a.status)
	require.Contains(t, string(a.body), "region_in_use")
	require.Contains(t, string(a.body), "Somebody comes, r2")
	users = nil

	picture = region.Picture{Width: 360, Height: 640}
	var list region.ShownRegions
	require.NoError(t, json.Unmarshal(r.ask("GET", "/api/regions", "").body, &list))
	require.Contains(t, list.Covered, "another ratio")
	require.True(t, list.Regions[1].Rests)
	require.Equal(t, 200, r.ask("POST", "/api/regions", "").status)
	require.Empty(t, regions.Covered())
	require.Equal(t, 200, r.ask("DELETE", "/api/regions/door", "").status)
	require.JSONEq(t, `{"regions":[],"aspect":0.5625,"mask_delayed":false}`, string(r.ask("DELETE", "/api/regions", "").body))

	require.Equal(t, access.Watch, access.Needed("GET /regions"))
	for _, operation := range []string{"PUT /regions/{name}", "DELETE /regions/{name}", "DELETE /regions", "POST /regions", "put_region"} {
		require.Equal(t, access.AllInRoom, access.Needed(operation), operation)
	}
}
