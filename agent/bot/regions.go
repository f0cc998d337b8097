package bot

import (
	"cmp"
	"fmt"
	"time"

	"touchline/agent/alert"
	"touchline/agent/region"
)

// makeRules makes the regions and the alert rules.
func (b *Bot) makeRules() (err error) {
	if b.Regions, err = region.NewSet(b.opts.Settings.Regions); err != nil {
		return fmt.Errorf("prepare the regions: %w", err)
	}
	b.Regions.Attach(b.pictureOfRegions, b.rulesNaming, b.regionsChanged)
	if b.Alerts, err = alert.NewSet(b.opts.Settings.Alert); err != nil {
		return fmt.Errorf("prepare the alert rules: %w", err)
	}
	b.Alerts.Accept(b.acceptsRule)
	return nil
}

// regionsChanged is called after each change of the masks, zones and lines.
func (b *Bot) regionsChanged() {
	b.Masked()
	b.save()
}

// pictureOfRegions returns what the regions need to know of the picture.
func (b *Bot) pictureOfRegions() region.Picture {
	if b.Session == nil { // not made yet
		return region.Picture{}
	}
	return b.PictureOfRegions()
}

// rulesNaming returns the names, or else the sentences, of the alert rules that name a zone or line in quotes.
func (b *Bot) rulesNaming(name string) (out []string) {
	for _, r := range b.Alerts.List(time.Now()) {
		if region.Names(r.When, name) {
			out = append(out, cmp.Or(r.Name, r.When))
		}
	}
	return out
}
