package console

import (
	"net/http"
	"time"

	"touchline/agent/region"
)

// regionOperations returns the operations on the masks, zones and lines of a room, with their paths below the room's.
func (s *Server) regionOperations() []endpoint {
	return needing(func(h *roomEntry) error { return started(h.Regions != nil) },
		get("/regions", "The privacy masks, zones and lines", func(h *roomEntry, _ *http.Request) (region.ShownRegions, error) {
			return h.Regions.View(), nil
		}),
		operation("PUT", "/regions/{name}", "Adds, changes or renames a region", http.StatusOK,
			func(h *roomEntry, _ http.ResponseWriter, r *http.Request, in region.Region) (region.ShownRegions, error) {
				return s.regionChanged(h, r, "region set", h.Regions.Put(r.PathValue("name"), in, by(r), time.Now()))
			}),
		operation("DELETE", "/regions/{name}", "Removes a region", http.StatusOK,
			func(h *roomEntry, _ http.ResponseWriter, r *http.Request, _ nothing) (region.ShownRegions, error) {
				return s.regionChanged(h, r, "region removed", h.Regions.Remove(r.PathValue("name")))
			}),
		operation("DELETE", "/regions", "Removes all regions, also those that cannot be read", http.StatusOK,
			func(h *roomEntry, _ http.ResponseWriter, r *http.Request, _ nothing) (region.ShownRegions, error) {
				return s.regionChanged(h, r, "all regions removed", h.Regions.Clear())
			}),
		operation("POST", "/regions", "Makes the regions fit the present picture", http.StatusOK,
			func(h *roomEntry, _ http.ResponseWriter, r *http.Request, _ *empty) (region.ShownRegions, error) {
				return s.regionChanged(h, r, "regions confirmed", h.Regions.Confirm(by(r), time.Now()))
			}),
	)
}

// regionChanged logs a change of the regions and publishes the snapshot, or returns the answer to err.
func (s *Server) regionChanged(h *roomEntry, r *http.Request, event string, err error) (region.ShownRegions, error) {
	if err != nil {
		return region.ShownRegions{}, refusal(oneLine(err),
			answer{region.ErrNoRegion, http.StatusNotFound, "no_region"},
			answer{region.ErrTooMany, http.StatusConflict, "too_many_regions"},
			answer{region.ErrNameTaken, http.StatusConflict, "name_taken"},
			answer{region.ErrInUse, http.StatusConflict, "region_in_use"},
			answer{region.ErrUnread, http.StatusConflict, "regions_unread"},
			answer{region.ErrNoPicture, http.StatusConflict, "no_picture"},
			answer{nil, http.StatusUnprocessableEntity, "bad_region"})
	}
	s.log.Info().Str("room", h.Name).Str("region", r.PathValue("name")).Str("by", by(r)).Msg(event)
	h.changed()
	return h.Regions.View(), nil
}
