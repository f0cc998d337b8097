package sfu

// browsers are the rules by which the server reads the User-Agent of a browser, in the form of github.com/ua-parser/uap-core.
// Its own 1,300 are compiled for the first browser and keep 12 MB; the server treats only Safari and Firefox, on Linux and
// on Android, in a way of their own. The first rule that matches counts.
const browsers = `
user_agent_parsers:
- {regex: '(HeadlessChrome)(?:/(\d+)\.(\d+)\.(\d+)|)'}
- {regex: '(?:Mobile|Tablet);.*(Firefox)/(\d+)\.(\d+)', family_replacement: 'Firefox Mobile'}
- {regex: '(FxiOS)/(\d+)\.(\d+)', family_replacement: 'Firefox iOS'}
- {regex: '(Firefox)/(\d+)\.(\d+)'}
- {regex: '(Edg|EdgA|EdgiOS)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Edge'}
- {regex: '(OPR)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Opera'}
- {regex: '(CriOS)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Chrome Mobile iOS'}
- {regex: '(Chrome)/(\d+)\.(\d+)\.(\d+)[\d.]* Mobile', family_replacement: 'Chrome Mobile'}
- {regex: '(Chrome)/(\d+)\.(\d+)\.(\d+)'}
- {regex: '(iPod|iPhone|iPad).+Version/(\d+)\.(\d+)(?:\.(\d+)|).*[ +]Safari', family_replacement: 'Mobile Safari'}
- {regex: '(Version)/(\d+)\.(\d+)(?:\.(\d+)|).*Safari/', family_replacement: 'Safari'}
os_parsers:
- {regex: '(Android)[ \-/](\d+)(?:\.(\d+)|)'}
- {regex: '(Android)'}
- {regex: '(Windows) NT (\d+)\.(\d+)'}
- {regex: '(CPU OS|iPhone OS|CPU iPhone OS)[ +]+(\d+)[_.](\d+)', os_replacement: 'iOS'}
- {regex: '(Mac OS X)[ _](\d+)[_.](\d+)'}
- {regex: '(CrOS) [a-z0-9_]+ (\d+)\.(\d+)', os_replacement: 'Chrome OS'}
- {regex: '(Ubuntu)'}
- {regex: '(Linux)'}
device_parsers: []
`
