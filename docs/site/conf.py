"""The configuration of Sphinx for the site. build.py arranges the pages and calls it."""

project = "Trireme"
extensions = ["myst_parser", "breathe"]
root_doc = "docs/index"
html_theme = "furo"
html_title = "Trireme"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
# Anchors are those that code hosts give a heading.
myst_heading_anchors = 4
breathe_projects = {"trireme": "doxygen/xml"}
breathe_default_project = "trireme"
primary_domain = "cpp"
highlight_language = "none"
# Each header opens the namespace trireme, and the parser of Sphinx does not know all initial values
# of C++20. Neither is a fault of a page.
suppress_warnings = ["duplicate_declaration.cpp", "source_code_parser.cpp"]
