package region_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"touchline/agent/region"
	"touchline/inference"
	"touchline/internal/polygon"
)

const wide = 16.0 / 9

func area(name, kind string) region.Region {
	return region.Region{Name: name, Kind: kind, Shape: polygon.Shape{
		Aspect: wide, Points: []polygon.Point{{0.1, 0.1}, {0.9, 0.1}, {0.5, 0.9}},
	}}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		edit func(l region.List) region.List
		want string
	}{
		{"none", func(region.List) region.List { return nil }, ""},
		{"right", func(l region.List) region.List { return l }, ""},
		{
			"name", func(l region.List) region.List { l[1].Name = "a\"b"; return l },
			`list[1].name: must be 1 to 40 characters without quotes, slashes and outer spaces, is "a\"b"`,
		},
		{"kind", func(l region.List) region.List { l[0].Kind = "hole"; return l }, `list[0].kind: must be mask, zone or line, is "hole"`},
		{
			"twice", func(l region.List) region.List { l[1].Name = "DOOR"; return l },
			`list[1].name: must be another name than that of list[0], is "DOOR"`,
		},
		{"corners", func(l region.List) region.List { l[0].Points = l[0].Points[:2]; return l }, "list[0].points: must be 3 to 16, are 2"},
		{"many", func(l region.List) region.List {
			for i := range 31 {
				l = append(l, area(strconv.Itoa(i), region.Zone))
			}
			return l
		}, "list: must be at most 32 regions, is 33"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.edit(region.List{area("door", region.Mask), area("yard", region.Zone)}).Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var r region.Item
	require.NoError(t, r.UnmarshalText([]byte("mask 1.5 0:0 1:0 0:0.5 back door")))
	require.Equal(t, region.Item{Name: "back door", Kind: region.Mask, Shape: polygon.Shape{
		Aspect: 1.5, Points: []polygon.Point{{0, 0}, {1, 0}, {0, 0.5}},
	}}, r)
	for _, text := range []string{"", "door", "mask wide 0:0"} {
		require.ErrorContains(t, r.UnmarshalText([]byte(text)), "must be a kind, the aspect")
	}
}

// rig is a Set with its room.
type rig struct {
	*region.Set
	picture region.Picture
	users   []string
	changes int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := region.NewSet(region.Config{List: []region.Item{region.Item(area("door", region.Mask))}})
	require.NoError(t, err)
	r := &rig{Set: s, picture: region.Picture{Width: 640, Height: 360}}
	s.Attach(func() region.Picture { return r.picture }, func(string) []string { return r.users }, func() { r.changes++ })
	return r
}

func TestChanges(t *testing.T) {
	t.Parallel()
	r, now := newRig(t), time.Unix(1e9, 0)
	version := r.Masks().Version
	yard := area("", region.Zone)
	yard.Aspect = 0
	require.NoError(t, r.Put("yard", yard, "ana", now))
	require.InDelta(t, wide, r.Saved().Regions[1].Aspect, 1e-9, "that of the picture")
	require.Equal(t, "ana", r.Saved().Regions[1].By)
	require.Greater(t, r.Masks().Version, version)
	require.Len(t, r.Masks().Shapes, 1)
	require.NoError(t, r.Put("yard", area("garden", region.Zone), "ana", now))
	require.NoError(t, r.Put("Garden", area("garden", region.Line), "ana", now))
	require.ErrorIs(t, r.Put("garden", area("Door", region.Zone), "ana", now), region.ErrNameTaken)
	require.ErrorIs(t, r.Put("yard", area("park", region.Zone), "ana", now), region.ErrNoRegion)
	require.ErrorContains(t, r.Put("yard", area("yard", "hole"), "ana", now), "kind: must be")
	require.ErrorIs(t, r.Remove("yard"), region.ErrNoRegion)
	require.Equal(t, 3, r.changes)

	r.users = []string{"Gate", "r2"}
	require.NoError(t, r.Put("garden", area("garden", region.Line), "ana", now), "the shape may change")
	for _, err := range []error{
		r.Put("garden", area("yard", region.Line), "ana", now), r.Put("garden", area("garden", region.Mask), "ana", now),
		r.Remove("garden"), r.Clear(),
	} {
		require.ErrorIs(t, err, region.ErrInUse)
		require.ErrorContains(t, err, "Gate, r2")
	}
	require.NoError(t, r.Remove("door"), "rules do not name masks")
	require.False(t, r.Masks().Any())
	r.users = nil
	require.NoError(t, r.Clear())
	for i := range region.MaxRegions {
		require.NoError(t, r.Put(strconv.Itoa(i), area("", region.Mask), "ana", now))
	}
	require.ErrorIs(t, r.Put("more", area("", region.Mask), "ana", now), region.ErrTooMany)
}

// TestAnotherRatio: masks cover everything and zones rest until they are confirmed.
func TestAnotherRatio(t *testing.T) {
	t.Parallel()
	r, now := newRig(t), time.Unix(1e9, 0)
	require.NoError(t, r.Put("yard", area("", region.Zone), "ana", now))
	require.Empty(t, r.Covered())
	v := r.View()
	require.Contains(t, v.Regions[0].Note, "Viewers of the room still see this")
	r.picture.Delayed = true
	require.Contains(t, r.View().Regions[0].Note, "cannot be masked")

	r.picture = region.Picture{Width: 1920, Height: 1088}
	require.Empty(t, r.Covered(), "a ratio within 2 %")
	r.picture = region.Picture{Width: 360, Height: 640}
	require.Contains(t, r.Covered(), "another ratio")
	v = r.View()
	require.True(t, v.Regions[0].Rests && v.Regions[1].Rests)
	require.Equal(t, r.Covered(), v.Covered)
	require.True(t, r.Masks().Whole(360, 640))
	require.ErrorContains(t, r.Resting(`a person enters the zone "Yard"`), `the zone "yard" rests`)
	require.Error(t, r.Resting(`a person enters the zone "YARD".`))
	require.NoError(t, r.Resting(`a person enters the yard`))
	require.NoError(t, r.Resting(`a person at the "door"`), "a mask")
	require.Empty(t, r.Zones(false))
	require.Equal(t, []inference.Region{{Name: "yard", Corners: [][2]float64{{0.1, 0.1}, {0.9, 0.1}, {0.5, 0.9}}}}, r.Zones(true))
	require.NoError(t, r.Confirm("bo", now))
	require.Equal(t, r.Zones(true), r.Zones(false))
	require.NoError(t, r.Resting(`a person enters the zone "yard"`))
	require.Empty(t, r.Covered())
	v = r.View()
	require.False(t, v.Regions[0].Rests || v.Regions[1].Rests)
	require.Equal(t, "bo", v.Regions[1].By)

	r.picture = region.Picture{}
	require.ErrorIs(t, r.Confirm("bo", now), region.ErrNoPicture)
	require.ErrorIs(t, r.Put("new", region.Region{Kind: region.Zone}, "bo", now), region.ErrNoPicture)
	require.Zero(t, r.View().Aspect)
}

// TestKept: regions survive; those that cannot be read cover everything until they are removed.
func TestKept(t *testing.T) {
	t.Parallel()
	r, now := newRig(t), time.Unix(1e9, 0).UTC()
	require.NoError(t, r.Put("yard", area("", region.Zone), "ana", now))
	text, err := json.Marshal(r.Saved())
	require.NoError(t, err)
	var kept region.Saved
	require.NoError(t, json.Unmarshal(text, &kept))
	next := newRig(t)
	require.NoError(t, next.Restore(kept, nil))
	require.Equal(t, r.Saved(), next.Saved())

	for _, broken := range []func() error{
		func() error { return next.Restore(region.Saved{}, errors.New("no JSON")) },
		func() error {
			return next.Restore(region.Saved{Regions: []region.SavedRegion{{Region: area("", region.Mask)}}}, nil)
		},
	} {
		require.Error(t, broken())
		require.True(t, next.Masks().All && next.Unread())
		require.Contains(t, next.Covered(), "cannot be read")
		require.ErrorIs(t, next.Put("door", area("", region.Mask), "ana", now), region.ErrUnread)
		require.ErrorIs(t, next.Remove("door"), region.ErrUnread)
		require.NoError(t, next.Clear())
		require.False(t, next.Masks().Any() || next.Unread())
	}
}
