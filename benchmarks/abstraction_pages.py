"""Fifty pages in the formats agents meet: accessibility trees, MiniWoB-like DOMs, shop texts.

Hand-made after what such sites look like; prices, names and filler are drawn from a fixed seed.
Every page says what its task is and which element an agent has to act on next.  Pages are built
without looking at what the abstraction does with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from dreamgym.seeds import derive_random


class StoredPage(NamedTuple):
    """A page, what is wanted on it, and the id of the element needed next."""

    name: str
    instruction: str
    text: str
    needed: str
    actions: tuple[str, ...] | None = None


class Tree:
    """Writes an accessibility tree line by line with ids like a browser's."""

    def __init__(self, title: str, random: Random) -> None:
        self._random = random
        self._next = random.randint(100, 900)
        self._lines = [f"RootWebArea '{title}', focused"]

    def add(self, role: str, name: str = "", rest: str = "", depth: int = 1) -> str:
        """Add a node and return its id."""
        self._next += self._random.randint(1, 9)
        quoted = repr(name)
        self._lines.append(f"{chr(9) * depth}[{self._next}] {role} {quoted}{rest}")
        return str(self._next)

    def text(self, name: str, depth: int = 1) -> None:
        """Add text without an id."""
        self._lines.append(f"{chr(9) * depth}StaticText {name!r}")

    def field(self, name: str, depth: int = 2) -> str:
        """Add a nameless text box with its label before it and return the id of the box."""
        self.text(name, depth)
        return self.add("textbox", "", ", required" if "*" in name else "", depth)

    def links(self, names: list[str], depth: int = 2) -> dict[str, str]:
        """Add links and return their ids by name."""
        return {name: self.add("link", name, depth=depth) for name in names}

    def __str__(self) -> str:
        return "\n".join(self._lines)


SHOP_MENU = [
    "Beauty & Personal Care", "Sports & Outdoors", "Clothing, Shoes & Jewelry", "Home & Kitchen",
    "Office Products", "Tools & Home Improvement", "Health & Household", "Patio, Lawn & Garden",
    "Electronics", "Cell Phones & Accessories", "Video Games", "Grocery & Gourmet Food",
]  # fmt: skip
FOOTER = [
    "Privacy and Cookie Policy", "Search Terms", "Advanced Search", "Contact Us", "About us",
    "Customer Service", "Orders and Returns", "Careers", "Press", "Help", "Terms of use",
]  # fmt: skip
PRODUCTS = [
    "Steel water bottle 750 ml", "Wireless headphones", "Cotton towel set", "Ceramic coffee mug",
    "Bamboo cutting board", "LED desk lamp", "Running socks, 3 pairs", "Mechanical keyboard",
    "Canvas backpack", "Yoga mat, green", "Phone stand", "Kitchen scale", "Travel pillow",
    "Rain jacket", "Wall clock",
]  # fmt: skip


def storefront(random: Random, number: int) -> StoredPage:
    """A product listing with one add-to-cart button and three links per product."""
    tree = Tree("One Stop Market", random)
    tree.links(["My Account", "My Wish List", "Sign Out", "Skip to Content"], depth=1)
    search = tree.add("combobox", "Search", " autocomplete='both' hasPopup='listbox'")
    tree.add("button", "Search", ", disabled=True")
    tree.links(SHOP_MENU)
    tree.add("heading", "Product Showcases")
    chosen = random.sample(PRODUCTS, 12)
    carts: dict[str, str] = {}
    names: dict[str, str] = {}
    for product in chosen:
        names[product] = tree.add("link", product, depth=3)
        tree.text(f"Rating: {random.randint(60, 100)}%", depth=3)
        tree.add("link", f"{random.randint(1, 40)} Reviews", depth=3)
        tree.text(f"${random.randint(4, 90)}.{random.randint(10, 99)}", depth=3)
        carts[product] = tree.add("button", "Add to Cart", depth=3)
        tree.add("button", "Add to Wish List", depth=3)
        tree.add("button", "Add to Compare", depth=3)
    tree.links(FOOTER)
    wanted = chosen[random.randrange(12)]
    if number % 3 == 0:
        return StoredPage("", f"Add the {wanted} to my cart.", str(tree), carts[wanted])
    if number % 3 == 1:
        return StoredPage(
            "", f"What do reviewers say about the {wanted}?", str(tree), names[wanted]
        )
    return StoredPage("", "Find a birthday gift for a gardener.", str(tree), search)


def admin(random: Random, number: int) -> StoredPage:
    """A shop's back office: long menu, a report form, a grid of orders."""
    tree = Tree("Orders / Magento Admin", random)
    menu = [
        "Dashboard", "Sales", "Catalog", "Customers", "Marketing", "Content", "Reports", "Stores",
        "System", "Find Partners & Extensions",
    ]  # fmt: skip
    ids = tree.links(menu)
    tree.add("heading", "Orders")
    boxes = {name: tree.field(name, depth=3) for name in ("From", "To", "Customer name")}
    status = tree.add("combobox", "Status", depth=3)
    for name in ("Any", "Canceled", "Complete", "On Hold", "Pending", "Processing"):
        tree.add("option", name, ", selected='true'" if name == "Any" else "", depth=4)
    apply = tree.add("button", "Apply Filters", depth=3)
    tree.links(["Export", "Columns", "Default View", "Filters"], depth=2)
    tree.add("table", "Orders", depth=2)
    views = []
    for _ in range(8):
        order = random.randint(1, 309)
        tree.add("row", "", depth=3)
        for cell in (f"{order:09d}", random.choice(["Ann Lee", "Bo Cruz", "Cy Ode"]), "Complete"):
            tree.add("cell", cell, depth=4)
        tree.add("cell", "", depth=4)
        views.append((f"{order:09d}", tree.add("link", "View", depth=5)))
    choices = [
        (f"Show me the details of order {views[3][0]}.", views[3][1]),
        ("List the orders from 05/01/2023 on: fill in the first date.", boxes["From"]),
        ("Show only pending orders.", status),
        ("The filters are filled in, apply them.", apply),
        ("Open the best-selling products report.", ids["Reports"]),
        ("Find all orders of the customer Bo Cruz.", boxes["Customer name"]),
    ]
    instruction, needed = choices[number % len(choices)]
    return StoredPage("", instruction, str(tree), needed)


def forge(random: Random, number: int) -> StoredPage:
    """A code hosting site: sidebar, tabs, issue list."""
    tree = Tree("Issues · a11y / project · GitLab", random)
    side = tree.links(
        ["Project information", "Repository", "Issues", "Merge requests", "CI/CD", "Security",
         "Deployments", "Packages and registries", "Infrastructure", "Monitor", "Analytics",
         "Wiki", "Snippets", "Settings"]
    )  # fmt: skip
    tree.links(["Skip to content", "Dashboard", "Explore", "Help"], depth=1)
    search = tree.add("searchbox", "Search GitLab")
    new = tree.add("link", "New issue", depth=2)
    tabs = {name: tree.add("tab", name, depth=3) for name in ("Open 24", "Closed 81", "All 105")}
    sort = tree.add("button", "Created date", depth=3)
    issues: dict[str, str] = {}
    for title in random.sample(
        ["Contrast too low in menu", "Keyboard trap in dialog", "Typo in README", "Add dark mode",
         "Crash on empty list", "Missing alt text", "Update licence year", "Slow start-up",
         "Docs: broken anchors", "Support Python 3.13"], 9
    ):  # fmt: skip
        issues[title] = tree.add("link", title, depth=4)
        tree.text(f"#{random.randint(1, 900)} created {random.randint(2, 11)} months ago", depth=4)
        tree.add("link", random.choice(["Ada K", "Ben T", "Cleo M"]), depth=4)
    tree.links(["Next", "2", "3"], depth=3)
    title = list(issues)[number % 9]
    choices = [
        (f'Open the issue "{title}".', issues[title]),
        ("Create a new issue with the title 'Hello'.", new),
        ("How many issues are closed? Show the closed ones.", tabs["Closed 81"]),
        ("Invite a user: open the project information.", side["Project information"]),
        ("Find the project named primer/design.", search),
        ("Sort the issues by something other than the created date.", sort),
        ("Show me the merge requests.", side["Merge requests"]),
        (f"Close the issue about: {title.lower()}.", issues[title]),
    ]
    instruction, needed = choices[number % len(choices)]
    return StoredPage("", instruction, str(tree), needed)


def forum(random: Random, number: int) -> StoredPage:
    """A forum's front page or its form for a new post."""
    tree = Tree("Postmill", random)
    tree.links(["Home", "Forums", "Wiki", "Notifications (0)", "MarvelsGrantMan136"], depth=1)
    box = tree.add("searchbox", "Search query")
    submit = tree.add("link", "Submit", depth=1)
    if number % 2:
        tree.add("heading", "Create submission")
        fields = {name: tree.field(name) for name in ("URL", "Title *", "Body")}
        tree.add("combobox", "Forum *", depth=2)
        for name in ("books", "Maine", "pics", "AskReddit", "technology", "worldnews", "gaming"):
            tree.add("option", name, depth=3)
        create = tree.add("button", "Create submission", depth=2)
        tree.links(FOOTER[:5])
        if number % 4 == 1:
            return StoredPage(
                "", "Post to books with the title 'Read this'.", str(tree), fields["Title *"]
            )
        return StoredPage("", "Everything is filled in: create the post.", str(tree), create)
    posts: dict[str, tuple[str, str]] = {}
    for title in random.sample(
        ["My cat opened the fridge", "A photo of the old harbour", "Why do we dream?",
         "New telescope pictures", "Best soup of the winter", "Train delays again"], 6
    ):  # fmt: skip
        post = tree.add("link", title, depth=3)
        tree.text(f"Submitted by user{random.randint(1, 99)}", depth=3)
        tree.add("link", f"{random.randint(2, 400)} comments", depth=3)
        up = tree.add("button", "Upvote", depth=3)
        tree.add("button", "Downvote", depth=3)
        posts[title] = (post, up)
    tree.links(["More", *FOOTER])
    title = list(posts)[number % 6]
    choices = [
        (f"Upvote the post '{title}'.", posts[title][1]),
        (f"Open the post {title}", posts[title][0]),
        ("Submit a new post about bicycles.", submit),
        ("Search the forum for bread recipes.", box),
    ]
    instruction, needed = choices[(number // 2) % len(choices)]
    return StoredPage("", instruction, str(tree), needed)


def widgets(random: Random, number: int) -> StoredPage:
    """A small task in a JSON DOM, as MiniWoB records them."""
    labels = random.sample(["Okay", "Cancel", "Submit", "Next", "Previous", "Yes", "No", "ok"], 6)
    refs = iter(range(3, 200))
    body: list[dict[str, Any]] = []

    def put(tag: str, text: str = "", **more: object) -> str:
        ref = next(refs)
        body.append({"tag": tag, "ref": ref, "text": text, "children": [], "classes": "", **more})
        return str(ref)

    kind = number % 4
    if kind == 0:
        ids = {label: put("BUTTON", label) for label in labels}
        for _ in range(8):
            put("INPUT_text")
        instruction, needed = f'Click on the "{labels[4]}" button.', ids[labels[4]]
    elif kind == 1:
        put("LABEL", "Username")
        put("INPUT_text")
        put("LABEL", "Password")
        needed = put("INPUT_password")
        put("BUTTON", "Login")
        instruction = 'The username is entered. Enter the password "9Vn" and press login.'
    elif kind == 2:
        words = random.sample(["sun", "tree", "Oak", "river", "pLz", "Kite", "moss", "v7b"], 7)
        ids = {}
        for word in words:
            ids[word] = put("INPUT_checkbox")
            put("LABEL", word)
        put("BUTTON", "Submit")
        instruction, needed = f"Select {words[2]} and click Submit.", ids[words[2]]
    else:
        links = random.sample(
            ["lorem", "ipsum", "dolor", "amet", "sed", "nibh", "eget", "urna", "justo", "felis",
             "augue", "purus", "massa", "velit"], 14
        )  # fmt: skip
        ids = {word: put("A", word) for word in links}
        instruction, needed = f'Click on the link "{links[9]}".', ids[links[9]]
    page = {"tag": "BODY", "ref": 1, "children": [{"tag": "DIV", "ref": 2, "children": body}]}
    return StoredPage("", instruction, json.dumps(page), needed)


def booking(random: Random, number: int) -> StoredPage:
    """An HTML form with scripts, styles and a navigation bar around it."""
    city = random.choice(["Oslo", "Porto", "Graz", "Turin"])
    menu = "".join(f'<li><a bid="m{i}" href="/{i}">{n}</a></li>' for i, n in enumerate(SHOP_MENU))
    options = "".join(
        f'<option bid="o{i}">{n}</option>' for i, n in enumerate(["Economy", "Business", "First"])
    )
    rooms = "".join(
        f"<tr><td>{name}</td><td>${random.randint(60, 300)}</td>"
        f'<td><button bid="r{i}">Reserve</button></td></tr>'
        for i, name in enumerate(["Single room", "Double room", "Family suite"])
    )
    text = f"""<!doctype html><html><head><title>Book a trip</title>
<style>.a{{color:red}}</style><script>var token = "{random.randint(10**9, 10**10)}";</script></head>
<body><nav><ul>{menu}</ul></nav><main><h1>Book a trip to {city}</h1>
<div class="error-message">The date is required.</div>
<form><label>From</label><input bid="from"><label>To</label><input bid="to" value="{city}">
<label>Date</label><input type="date" bid="date"><label>Class</label>
<select bid="class">{options}</select>
<label><input type="checkbox" bid="direct"> Direct flights</label>
<input type="hidden" value="x"><button bid="find" type="submit">Find flights</button></form>
<h2>Rooms in {city}</h2><table><tr><th>Room</th><th>Price</th><th></th></tr>{rooms}</table></main>
<footer>{"".join(f'<a bid="f{i}">{n}</a> ' for i, n in enumerate(FOOTER))}</footer></body></html>"""
    choices = [
        (f"Fly to {city} on 3 May: enter the date.", "date"),
        ("Fly in business class.", "class"),
        ("Only direct flights.", "direct"),
        ("Everything is filled in, find flights.", "find"),
        ("Reserve the family suite.", "r2"),
        ("Start the trip from Rome.", "from"),
    ]
    instruction, needed = choices[number % len(choices)]
    return StoredPage("", instruction, text, needed)


def products(random: Random, number: int) -> StoredPage:
    """A text page of WebShop: results of a search, or a product with options."""
    kinds = ["running shoes", "face cream", "usb cable", "wooden shelf"]
    kind = random.choice(kinds)
    color = random.choice(["navy", "olive green", "wine red"])
    instruction = f"i need {color} {kind}, size 9.5, and price lower than 40.00 dollars"
    head = f"Instruction: [SEP] {instruction} [SEP] Back to Search"
    if number % 2:
        sizes = ["8", "8.5", "9", "9.5", "10", "10.5", "11", "11.5", "12", "13"]
        colors = ["black", "navy", "olive green", "wine red", "grey", "white", "yellow", "pink"]
        parts = ["< Prev", "size", *sizes, "color", *colors, f"{kind.title()} for every day"]
        parts += ["Price: $31.50", "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"]
        needed = ["9.5", color, "Buy Now"][number // 2 % 3]
        return StoredPage("", instruction, " [SEP] ".join([head, *parts]), needed)
    parts = ["Page 1 (Total results: 50)", "Next >"]
    wanted = random.randrange(10)
    asins = []
    for place in range(10):
        asins.append(f"B0{''.join(random.choice('ABCDEFGH0123456789') for _ in range(8))}")
        name = f"{kind} {color}" if place == wanted else random.choice(PRODUCTS)
        parts += [asins[-1], f"Brand{place} {name}, long lasting", f"${random.randint(5, 90)}.0"]
    return StoredPage("", instruction, " [SEP] ".join([head, *parts]), asins[wanted])


BUILDERS: dict[str, tuple[Callable[[Random, int], StoredPage], int]] = {
    "storefront": (storefront, 6),
    "admin": (admin, 6),
    "forge": (forge, 8),
    "forum": (forum, 8),
    "widgets": (widgets, 8),
    "booking": (booking, 6),
    "products": (products, 8),
}


def stored_pages(seed: int = 0) -> list[StoredPage]:
    """Return all pages; the same in every process. Other seeds draw other names and numbers."""
    pages = []
    for name, (build, count) in BUILDERS.items():
        for number in range(count):
            page = build(derive_random("abstraction page", seed, name, number), number)
            pages.append(page._replace(name=f"{name}-{number}"))
    return pages
