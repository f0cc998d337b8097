package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"touchline/agent/region"
)

// errNoRegions is the answer of a bot without regions.
var errNoRegions = errors.New("this program has no masks, zones and lines")

// RegionList is the answer of the methods for regions.
type RegionList struct {
	region.ShownRegions

	// More reports that there are more regions after these.
	More bool `json:"more"`
}

// doRegions executes a method for masks, zones and lines for an authorised caller.
func (c *Control) doRegions(method string, p params, by string) (any, error) {
	if c.regions == nil {
		return nil, errNoRegions
	}
	var err error
	switch {
	case method == methodRegions:
		return c.listRegions(p.After)
	case method == methodConfirmRegions:
		err = c.regions.Confirm(by, time.Now())
	case method == methodClearRegions:
		err = c.regions.Clear()
	case p.Name == nil:
		return nil, missing(method, "name")
	case method == methodRemoveRegion:
		err = c.regions.Remove(*p.Name)
	case p.Region == nil:
		return nil, missing(method, "region")
	default:
		err = c.regions.Put(*p.Name, *p.Region, by, time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	c.log.Info().Str("method", method).Any("region", p.Name).Str("by", by).Msg("regions changed")
	return c.listRegions("")
}

// listRegions returns the regions after the one with a name, or all without a name, as many as fit.
func (c *Control) listRegions(after string) (RegionList, error) {
	out := RegionList{ShownRegions: c.regions.View()}
	if after != "" {
		i := slices.IndexFunc(out.Regions, func(r region.ShownRegion) bool { return r.Name == after })
		if i < 0 {
			return RegionList{}, region.ErrNoRegion
		}
		out.Regions = out.Regions[i+1:]
	}
	out.Regions, out.More = fit(out.Regions)
	return out, nil
}
