#!/usr/bin/env python3
"""Chat templates: `onw render` against transformers, byte for byte.

Renders every *.jinja of a folder (--templates, else $ONW_TEMPLATES) over the dialogues below, and the short templates of
SNIPPETS, with both; a template that raises must raise in both. Needs `transformers` and `jinja2`, no torch.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import transformers.utils.chat_template_utils as chat_templates  # noqa: E402

NOW = datetime.datetime(2026, 1, 31, 12, 34, 56, 789)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class FrozenClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_templates.datetime = FrozenClock


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place <now> & later, \"quoted\"",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, 例えば京都"},
                "days": {"type": "integer", "default": 3, "minimum": 1, "maximum": 14},
                "units": {"type": "string", "enum": ["metric", "imperial"], "nullable": True},
                "box": {"type": "array", "items": {"type": "number"}, "default": [0.5, 1e-07, 1.0, 1e22]},
            },
            "required": ["place"],
        },
        "return": {"type": "object", "properties": {"celsius": {"type": "number"}}, "required": []},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Full text search\nover two lines",
        "parameters": {
            "type": "object",
            "properties": {
                "filter": {
                    "type": "object",
                    "description": "nested",
                    "properties": {"b": {"type": ["string", "null"]}, "A": {"type": "boolean", "default": False}},
                    "required": ["b"],
                },
                "any": {"oneOf": [{"type": "string"}, {"type": "integer", "default": 12345678901234567890123}]},
            },
        },
    },
}
EMPTY = {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}}
LONG = "".join(chr(c) for c in range(32, 127)) + " é 日本語 \U0001F600 \u00a0\u2028\u3000 end"

CALLS = [
    user("How is it in Kyoto?"),
    assistant("", tool_calls=[call("get_weather", {"place": "Kyoto", "days": 2, "deep": {"a": [1, None, True, 0.1]}})]),
    tool('{"celsius": 21.5}', name="get_weather", tool_call_id="c1"),
    assistant("21.5 degrees."),
    user("And then?"),
]
DIALOGUES = {
    "one question": {"messages": [user("Hi")]},
    "no generation prompt": {"messages": [user("Hi"), assistant("Hello!")], "add_generation_prompt": False},
    "system": {"messages": [system("Be brief."), user("Hi")]},
    "many turns": {"messages": [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")]},
    "outer spaces": {"messages": [system("  s \n"), user("\n\n a \t"), assistant("  b\n"), user(" \u3000c\x1f ")]},
    "all characters": {"messages": [user(LONG), assistant(LONG), user("\n {{ x }} {% raw %} '\"")]},
    "tools": {"messages": [user("Hi")], "tools": [WEATHER]},
    "tools and system": {"messages": [system("Use tools."), user("Hi")], "tools": [WEATHER, SEARCH, EMPTY]},
    "no tools": {"messages": [user("Hi")], "tools": []},
    "tool results": {"messages": CALLS, "tools": [WEATHER, SEARCH]},
    "tool results without tools": {"messages": CALLS},
    "ends with a result": {"messages": CALLS[:3], "tools": [WEATHER]},
    "two calls at once": {
        "messages": [
            user("q"),
            assistant("Let me see.", tool_calls=[call("search", {"filter": {"b": "<x>"}}, id="1"), call("noop", {}, id="2")]),
            tool("r1", name="search", tool_call_id="1"),
            tool("r2\n", name="noop", tool_call_id="2"),
            assistant("done"),
            user("more"),
        ],
        "tools": [SEARCH, EMPTY],
    },
    "arguments as text": {
        "messages": [user("q"), assistant(None, tool_calls=[call("noop", '{"a": 1}')]), tool("ok"), user("z")],
        "tools": [EMPTY],
    },
    "content is null": {"messages": [user("q"), assistant(None, tool_calls=[call("noop", {})]), tool("")], "tools": [EMPTY]},
    "thinking on": {"messages": [user("2+2?")], "enable_thinking": True, "thinking": True},
    "thinking off": {"messages": [system("s"), user("2+2?")], "enable_thinking": False, "thinking": False},
    "thought in the history": {
        "messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("d", reasoning_content="why\n"), user("e")],
        "enable_thinking": True,
    },
    "thought before a call": {
        "messages": [user("a"), assistant("", reasoning_content="I look.", tool_calls=[call("noop", {"x": "y"})]), tool("3"), user("b")],
        "tools": [EMPTY],
        "reasoning_effort": "high",
    },
    "thought by another name": {"messages": [user("a"), assistant("b", thinking="t"), user("c"), assistant("d", reasoning="u")]},
    "parts": {
        "messages": [
            system([{"type": "text", "text": "Sys."}]),
            user([{"type": "text", "text": "See "}, {"type": "image"}, {"type": "text", "text": " this"}]),
            assistant([{"type": "text", "text": "I see"}]),
            user("ok"),
        ]
    },
    "image and video": {"messages": [user([{"type": "image"}, {"type": "video"}, {"type": "text", "text": "t"}])], "add_vision_id": True},
    "documents": {
        "messages": [user("q")],
        "documents": [{"title": "T", "text": "body <b>"}, {"doc_id": 2, "title": "U", "text": "x"}],
    },
    "developer": {"messages": [{"role": "developer", "content": "Dev."}, user("q")], "model_identity": "You are X."},
    "odd role": {"messages": [{"role": "critic", "content": "c"}]},
    "no message": {"messages": []},
    "system comes late": {"messages": [user("q"), system("late"), user("r")]},
    "two users": {"messages": [user("q"), user("r")]},
    "ends with the assistant": {"messages": [user("q"), assistant("half an")]},
    "markers of reasoning": {"messages": [system("/no_think s"), user("x /think"), assistant("</think>y"), user("<think>")]},
    "a dated system": {"messages": [system("s"), user("q")], "date_string": "1 Jan 2025", "tools_in_user_message": False, "tools": [WEATHER]},
    "xml and python tools": {"messages": [user("q")], "xml_tools": [WEATHER], "python_tools": ["def f(): pass"], "custom_instructions": "ci"},
    "builtin tools": {"messages": [user("q")], "builtin_tools": ["browser", "python", "code_interpreter", "brave_search"]},
}

# Python and Jinja2 in small: what a template may print, call and test. `v` is VALUES.
VALUES = {
    "f": [1.0, 0.1, 1e-5, 0.0001, 1e16, 1e15, 123456789.125, -0.0, 1e300, 5e-324, 3.0e10],
    "i": [0, -1, 9223372036854775808, 340282366920938463463374607431768211456, 12345678901234567890123456789012345678901234567890],
    "s": "  Ab'c\"\n\t\\é日\u00ad\u0301\x7f ",
    "d": {"b": 1, "A": [True, None, {"z": "it's"}], "items": "shadow", "c": {"get": 2}},
    "l": ["x", "y", 'z"', "it's"],
    "t": True,
    "n": None,
    "e": "",
    "words": "one two  three\nfour",
}
SNIPPETS = r"""
{{ v.f }}|{{ v.f[2] }}|{{ v.f[4] }}|{{ v.f|join(' ') }}
{{ v.i }}|{{ v.i[2] }}|{{ v.i[3] }}|{{ v.i|tojson }}
{{ v.f|tojson }}|{{ v.f[2]|string }}|{{ v.f[0] ~ '' }}
{{ v.s }}|{{ [v.s] }}|{{ v.s|tojson }}|{{ v.s|tojson(ensure_ascii=True) }}
{{ v.d }}|{{ v.d ~ '' }}|{{ v.d|string }}|{{ v.d|tojson }}|{{ v.d|tojson(indent=2) }}
{{ v.d|tojson(indent=4, sort_keys=true) }}|{{ v.d|tojson(separators=(',', ':')) }}
{{ []|tojson(indent=2) }}{{ {}|tojson(indent=2) }}{{ [[]]|tojson(indent=2) }}
{{ v.t }}{{ v.n }}{{ v.t|tojson }}{{ v.n|tojson }}{{ v.n|string }}{{ v.t ~ v.n }}
{{ v.l }}|{{ v.l|join(', ') }}|{{ v.l[1:] }}|{{ v.l[::-1] }}|{{ v.l[-1] }}|{{ v.l + ['w'] }}
{{ v.s|trim }}|{{ v.s.strip() }}|{{ v.s.lstrip(' A') }}|{{ v.s.rstrip() }}|{{ 'xxaxx'.strip('x') }}
{{ v.words.split() }}|{{ v.words.split(' ') }}|{{ v.words.split(' ', 1) }}|{{ v.words.rsplit(' ', 1) }}
{{ v.words.split(none, 1) }}|{{ v.words.rsplit(none, 1) }}|{{ v.words.splitlines() }}|{{ v.words.partition(' ') }}
{{ v.words.upper() }}|{{ v.words.title() }}|{{ v.words.capitalize() }}|{{ v.words|title }}|{{ v.words|capitalize }}
{{ v.words.startswith('one') }}|{{ v.words.endswith(('x', 'four')) }}|{{ v.words.find('two') }}|{{ v.words.count('o') }}
{{ v.words.replace('o', '0') }}|{{ v.words.replace('o', '0', 1) }}|{{ v.words|replace('t', 'T') }}
{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ '7'.zfill(3) }}|{{ 'a'.ljust(3) }}.|{{ 'a'.center(4, '*') }}
{{ 'a'.isdigit() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'Ab'.islower() }}{{ 'A1'.isupper() }}
{{ ','.join(v.l) }}|{{ '{} and {}'.format(1, 'x') }}|{{ '%s-%d'|format('a', 3) }}
{% for k, x in v.d.items() %}{{ k }}={{ x }};{% endfor %}|{{ v.d.keys()|list }}|{{ v.d.get('q', 5) }}|{{ v.d.get('q') }}
{% for k, x in v.d|dictsort %}{{ k }}={{ x }};{% endfor %}{% for k, x in v.d|items %}{{ k }}{% endfor %}
{{ v.d.missing }}|{{ v.d.missing is defined }}|{{ missing is undefined }}|{{ missing }}|{{ missing|default('d') }}|{{ v.e|default('d', true) }}
{{ missing.attribute }}
{{ v.d.missing.attribute }}
{{ v.n.attribute }}|{{ v.e.attribute }}|{{ v.l.attribute }}|{{ v.l[9] }}
{{ missing|length }}|{{ missing|list }}|{{ missing|join }}|{{ missing|string }}|{{ missing|trim }}|{{ missing|upper }}|{% for x in missing %}{% endfor %}
{{ missing|tojson }}
{{ 'a' + 1 }}
{{ 'a' ~ 1 ~ none ~ 1.5 }}|{{ 1 + 1.0 }}|{{ 7 / 2 }}|{{ 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ 2 ** 10 }}|{{ 10 * 1.5 }}
{{ 'ab' * 2 }}|{{ 1 == 1.0 }}|{{ 'a' < 'b' }}|{{ 1 == true }}|{{ none == false }}|{{ [1, 2] == [1, 2] }}|{{ {'a': 1} == {'a': 1} }}
{{ 'x' in v.l }}|{{ 'b' in v.d }}|{{ 'A' in v.s }}|{{ 1 in [1] }}|{{ 'x' not in 'abc' }}
{{ 'a' is string }}{{ v.d is mapping }}{{ v.l is sequence }}{{ 'a' is sequence }}{{ v.d is sequence }}{{ v.d is iterable }}{{ 'a' is iterable }}{{ v.n is iterable }}
{{ 1 is number }}{{ true is number }}{{ 1.0 is float }}{{ 1 is integer }}{{ true is integer }}{{ true is boolean }}{{ none is none }}{{ missing is none }}{{ 1 is odd }}
{{ v.t is true }}{{ 1 is true }}{{ v.l is string }}{{ v.l is mapping }}{{ missing is string }}{{ missing is iterable }}{{ missing is sequence }}
{{ 5 if false }}|{{ 'y' if v.t else 'n' }}|{{ not v.e }}|{{ v.e or 'alt' }}|{{ v.l and 'both' }}|{{ v.n is not none }}
{{ range(3)|list }}|{{ range(5, 0, -2)|list }}|{{ v.l|first }}|{{ v.l|last }}|{{ v.l|length }}|{{ v.d|length }}|{{ 'é日'|length }}
{{ v.l|map('upper')|list }}|{{ v.l|map('length')|join(',') }}|{{ v.l|select('equalto', 'x')|list }}|{{ v.l|reject('equalto', 'x')|list }}
{{ [{'a': 1, 'b': 2}, {'a': 3}]|map(attribute='a')|list }}|{{ [{'a': 1}, {'a': 0}]|selectattr('a')|list }}|{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'equalto', 2)|list }}
{{ [3, 1, 2]|sort }}|{{ ['b', 'A', 'c']|sort }}|{{ [1, 2, 2]|unique|list }}|{{ [1, 2, 3]|sum }}|{{ [1, 5, 3]|max }}|{{ [1, 2]|reverse|list }}
{{ '3'|int }}|{{ '3.7'|int }}|{{ 'x'|int }}|{{ '3.5'|float }}|{{ 3.7|int }}|{{ 3.14159|round(2) }}|{{ -5|abs }}|{{ 2.5|round }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ '<a href="x">&'|e }}|{{ 'a b'|wordcount }}
{% set ns = namespace(n=0, s='') %}{% for x in v.l %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }}{{ ns.s }}
{% set x = 1 %}{% for i in range(2) %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}
{% for x in v.l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% else %}none{% endfor %}
{% for x in v.n %}{{ x }}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{% for x in (v.l if v.t else v.n) if x == 'x' or ' if ' in x %}{{ x }}{% endfor %}|{% for x in v.l + ['a if b'] if x != 'if' %}{{ x }}{% endfor %}
{# {% for x in v.n %} #}{% raw %}{% for x in y %}{% generation %}{% endraw %}|{%- for x in [1]-%} {{ x }} {%-endfor%}
{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}
{{ v.d.items()|list }}|{{ v.d|items|list }}|{{ v.d|dictsort }}|{{ v.d|dictsort|tojson }}|{{ 'a=b'.partition('=') }}
{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.675|round(2) }}|{{ 2.1|round(method='ceil') }}|{{ -2.1|round(0, 'floor') }}|{{ 7|round }}
{% for x in v.l if x != 'y' %}{{ loop.index }}{{ x }}{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}
{% for x in v.l %}{% if x == 'y' %}{% continue %}{% endif %}{% if loop.last %}{% break %}{% endif %}{{ x }}{% endfor %}
{% macro m(a, b='B', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m('x', 'y')|upper }}
{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}{% macro q() %}{{ x is defined }}{% endmacro %}{% for x in [1] %}{{ q() }}{% endfor %}
a {%- if true -%} b {%- endif %} c {{- ' d ' -}} e {# note #} f {#- note -#} g
{%- set x -%} block {{ v.t }} {%- endset -%}{{ x }}|{% filter upper %}abc{% endfilter %}|{% raw %}{{ x }}{% endraw %}
{% generation %}said {{ v.t }}{% endgeneration %}|{%- generation -%} x {%- endgeneration %}
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}
{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %A %j %-d %p%%') }}|{{ strftime_now('') }}|{{ strftime_now('%Z%z') }}
{{ raise_exception('No: ' ~ v.t) }}
{{ dict(a=1, b='x') }}|{{ dict(v.c|default({}), z=1) }}|{{ {'k': v.l[0], 2: none} }}
{% set a, b = (1, 2) %}{{ a }}{{ b }}{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }}{% endfor %}
{{ v.words[4:7] }}|{{ v.words[-4:] }}|{{ v.words[0] }}|{{ v.words[::-1] }}|{{ v.l[1:2][0] }}
{{ v.d['items'] }}|{{ v.d.c['get'] }}|{{ v.d['A'][2]['z'] }}|{{ v.d.items() is defined }}
{{ nofilter|nothing }}
{{ nofunction() }}
{% if %}
{{ v.l.append('q') }}
{{ ''.split('') }}
{{ 'é'.upper() }}{{ 'ß'.upper() }}{{ 'İ'.lower() }}{{ 'ΑΣ'.lower() }}
{{ '\u00e9\n\t\x41' }}|{{ "q\\"uote" }}|{{ 'it\'s' }}
{{ 1_000 }}|{{ 1e3 }}|{{ 0x10 }}|{{ 1.5e-7 }}|{{ true }}|{{ True }}|{{ None }}|{{ false }}
{{ [1, 2.0, 'x', true, none, {'a': [1, 'b']}] }}
{{ v.d.values()|list }}|{{ v.d|list }}|{% for k in v.d %}{{ k }}{% endfor %}|{{ v.d|first }}
{% with a = 1 %}{{ a }}{% endwith %}{{ a }}|{% set _ = namespace(x=1) %}{{ _.x }}|{{ _.y is defined }}
{{ 'a' 'b' }}|{{ 0 - v.i[1] }}|{{ 2 if 1 > 0 and not false else 3 }}|{{ 1 < 2 < 3 }}
{{ "line" if loop is defined else 'no loop' }}|{{ cycler is defined }}
""".strip("\n").split("\n")


def by_transformers(template, request):
    variables = {key: value for key, value in request.items() if key not in ("messages", "tools", "documents", "add_generation_prompt")}
    try:
        rendered, _ = chat_templates.render_jinja_template(
            [request["messages"]],
            tools=request.get("tools"),
            documents=request.get("documents"),
            chat_template=template,
            add_generation_prompt=request.get("add_generation_prompt", True),
            **{**TOKENS, **variables},
        )
        return rendered[0], None
    except Exception as error:  # whatever Jinja2, json or Python says
        return None, str(error)


def by_onw(onw, path, request):
    text = json.dumps({**request, "special_tokens": TOKENS, "now": NOW.isoformat()}, ensure_ascii=False)
    run = subprocess.run([onw, "render", "--template", path], input=text.encode(), capture_output=True)
    return (run.stdout.decode(), None) if run.returncode == 0 else (None, run.stderr.decode().strip())


def difference(theirs, ours):
    at = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    begin = max(0, at - 40)
    return f"  at {at}\n    theirs: {theirs[begin:at + 60]!r}\n    ours:   {ours[begin:at + 60]!r}"


def compare(onw, name, path, template, request, counts):
    theirs, their_error = by_transformers(template, request)
    ours, our_error = by_onw(onw, path, request)
    if theirs is None and ours is None:
        counts["raised"] += 1
    elif theirs == ours:
        counts["equal"] += 1
    else:
        counts["different"] += 1
        print(f"FAIL {name}")
        if theirs is not None and ours is not None:
            print(difference(theirs, ours))
        else:
            print(f"    theirs: {theirs!r} {their_error!r}\n    ours:   {ours!r} {our_error!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--onw", default=os.environ.get("ONW", "build/release/onw"))
    parser.add_argument("--templates", default=os.environ.get("ONW_TEMPLATES"))
    options = parser.parse_args()
    counts = {"equal": 0, "raised": 0, "different": 0}
    templates = sorted(pathlib.Path(options.templates).glob("*.jinja")) if options.templates else []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "snippet.jinja"
        for i, source in enumerate(SNIPPETS):
            path.write_text(source)
            compare(options.onw, f"snippet {i + 1}: {source}", path, source, {"messages": [], "v": VALUES}, counts)
    for path in templates:
        source = path.read_text()
        for name, request in DIALOGUES.items():
            compare(options.onw, f"{path.stem}: {name}", path, source, request, counts)
    print(f"{len(templates)} templates, {len(DIALOGUES)} dialogues, {len(SNIPPETS)} snippets: "
          f"{counts['equal']} equal, {counts['raised']} raise in both, {counts['different']} different")
    if not templates:
        print("SKIP the models' templates: set ONW_TEMPLATES to a folder of *.jinja files")
    print(f"{counts['equal'] + counts['raised']} passed, {counts['different']} failed, {0 if templates else 1} skipped")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
