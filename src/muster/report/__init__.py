"""Build static HTML pages: of a test run from its artifact folder (docs/artifacts.md), and of a flow run from its directory."""
