package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"touchline/agent/access"
)

// tokenCmd makes a token for the page and the API.
type tokenCmd struct {
	Room   []string      `arg:"" help:"Rooms that it is for; '*' is every room."`
	Rights []string      `help:"Of watch, instruct, settings, sources, rules, speak, transcribe; steer is all." default:"watch" placeholder:"RIGHT,..."` //nolint:lll // tags
	For    time.Duration `help:"Time until it expires." default:"24h"`
	Name   string        `help:"Name of the person, for the page and the log."`
	Page   string        `help:"Address of the page; prints a link instead of the token." placeholder:"URL"`
}

// Run prints the token or the link.
func (c *tokenCmd) Run(a *app) error {
	rights, err := access.Parse(c.Rights)
	if err != nil {
		return fmt.Errorf("--rights: %w", err)
	}
	now := time.Now()
	token, err := access.Sign(a.cfg.Agent.LiveKit.Keys(), access.Grant{
		Rooms: c.Room, Rights: rights, Name: strings.TrimSpace(c.Name), Expires: now.Add(c.For),
	}, now)
	if err != nil {
		return err
	}
	if c.Page != "" {
		page, err := url.Parse(c.Page)
		if err != nil || page.Scheme != "http" && page.Scheme != "https" || page.Host == "" {
			return errors.New("--page: must be an address such as https://touchline.example/rooms/final")
		}
		page.RawFragment, page.Fragment = "", "token="+token
		token = page.String()
	}
	_, err = fmt.Fprintln(os.Stdout, token)
	return err
}
