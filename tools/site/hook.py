"""Builds README and docs/ as one site: README is its start page, and a link to any other file leads
to the repository at the version that the site describes."""

import json
import logging
import os
import posixpath
import re
from pathlib import Path
from urllib.parse import urlsplit

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Section

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/weir-edge/weir"
VERSION = os.environ["VERSION"]
# Browsers refuse everything that a page would load from elsewhere; the theme's scripts are inline.
POLICY = "default-src 'self' 'unsafe-inline'; img-src 'self' data:"

log = logging.getLogger("mkdocs.hook")  # in strict mode, its warnings fail the build
page_name = ""  # of the page being built, from docs/


class Links(Treeprocessor):
    """Makes links relative to the repository's files relative to the site's, before mkdocs checks them."""

    def run(self, root):
        for element in root.iter():
            for name in ("href", "src"):
                if element.get(name):
                    element.set(name, moved(element.get(name)))


def moved(link):
    url = urlsplit(link)
    if url.scheme or url.netloc or not url.path or "\x02" in link:  # \x02: a hidden mail address
        return link
    source = page_name if page_name == "README.md" else "docs/" + page_name
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), url.path))
    if (target.startswith("docs/") and not target.endswith(".go")) or target == "README.md":
        path = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page_name) or ".")
    elif (ROOT / target).exists():
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        path = f"{REPOSITORY}/{kind}/{VERSION}/{target}"
    else:
        log.warning(f"{source}: {link} leads nowhere")
        return link
    return path + ("#" + url.fragment if url.fragment else "")


class LinksExtension(Extension):
    def extendMarkdown(self, md):
        md.treeprocessors.register(Links(md), "links", 5)  # before mkdocs's, which is 0


def on_config(config):
    config["markdown_extensions"].append(LinksExtension())
    config["theme"].static_templates.discard("404.html")  # its links need a fixed address
    return config


def on_files(files, config):
    readme = File("README.md", str(ROOT), config["site_dir"], config["use_directory_urls"])
    return Files([readme] + [f for f in files if not f.src_uri.endswith(".go")])


def on_nav(nav, config, files):
    for f in files.documentation_pages():
        if f.page not in nav.pages:
            log.warning(f"{f.src_uri} is missing in nav")
    sections = {item.title: item for item in nav.items}
    for name, parts in config["extra"]["parts"].items():
        if name not in sections:
            sections[name] = Section(name, [])
            nav.items.insert(1, sections[name])
        for title, target in parts.items():
            file, _, anchor = target.partition("#")
            link = Link(title, files.get_file_from_path(file).url + "#" + anchor)
            link.parent = sections[name]
            sections[name].children.append(link)
    return nav


def on_page_markdown(markdown, page, config, files):
    """Writes for Python-Markdown what GitHub reads otherwise."""
    global page_name
    page_name = page.file.src_uri
    markdown = re.sub(r"(?m)^```(\w+) .*$", r"```\1", markdown)  # README marks blocks for its test
    code = re.compile(r"`[^`\n]+`")
    return re.sub(r"(?m)^\|.*$", lambda row: code.sub(lambda c: c[0].replace(r"\|", "|"), row[0]), markdown)


def on_post_page(output, page, config):
    return output.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}">', 1)


def on_post_build(config):
    """Lists the versions, the latest build first, and leads from the folder above to it."""
    above = Path(config["site_dir"]).parent
    built = sorted(above.glob("*/index.html"), key=lambda page: page.stat().st_mtime, reverse=True)
    versions = [page.parent.name for page in built]
    (above / "versions.json").write_text(json.dumps([{"version": v, "title": v, "aliases": []} for v in versions]))
    (above / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={versions[0]}/index.html">')
