"""What DreamGym's own rooms are made of: our tables of kinds, places and properties.

Everything here is written for this project; names follow the vocabulary household agents know.
"""

from __future__ import annotations

ROOM_TYPES: tuple[str, ...] = ("bathroom", "bedroom", "kitchen", "livingroom")

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})

KITCHEN_TOPS = "countertop diningtable shelf sidetable cabinet drawer"
SITTING_TOPS = "bed desk dresser shelf sidetable coffeetable diningtable sofa armchair tvstand"

_PLACES: dict[str, str] = {
    # food
    "apple": "countertop diningtable sidetable fridge microwave sinkbasin garbagecan",
    "bread": "countertop diningtable sidetable fridge microwave garbagecan",
    "egg": "countertop diningtable sidetable fridge microwave sinkbasin garbagecan",
    "lettuce": "countertop diningtable sidetable fridge sinkbasin garbagecan",
    "potato": "countertop diningtable sidetable fridge microwave sinkbasin garbagecan",
    "tomato": "countertop diningtable sidetable fridge microwave sinkbasin garbagecan",
    # tableware and tools
    "bowl": f"{KITCHEN_TOPS} fridge microwave sinkbasin desk dresser coffeetable",
    "cup": f"{KITCHEN_TOPS} fridge microwave sinkbasin",
    "mug": f"{KITCHEN_TOPS} fridge microwave sinkbasin coffeemachine desk dresser",
    "plate": f"{KITCHEN_TOPS} fridge microwave sinkbasin coffeetable",
    "pan": "countertop diningtable cabinet fridge sinkbasin stoveburner",
    "pot": "countertop diningtable cabinet fridge sinkbasin stoveburner",
    "kettle": "countertop diningtable cabinet shelf sinkbasin stoveburner",
    "knife": "countertop diningtable drawer sinkbasin",
    "butterknife": "countertop diningtable sidetable drawer sinkbasin",
    "fork": "countertop diningtable sidetable drawer sinkbasin",
    "spoon": "countertop diningtable sidetable drawer sinkbasin",
    "ladle": "countertop diningtable drawer sinkbasin",
    "spatula": "countertop diningtable sidetable drawer sinkbasin",
    "peppershaker": "countertop diningtable sidetable cabinet drawer shelf",
    "saltshaker": "countertop diningtable sidetable cabinet drawer shelf",
    "dishsponge": "countertop cabinet drawer shelf sinkbasin bathtubbasin garbagecan",
    "glassbottle": "countertop diningtable cabinet shelf fridge sinkbasin garbagecan",
    "winebottle": "countertop diningtable cabinet fridge garbagecan",
    # bathroom
    "soapbar": "countertop cabinet drawer shelf sinkbasin bathtubbasin toilet garbagecan",
    "soapbottle": "countertop cabinet drawer shelf sinkbasin bathtubbasin toilet garbagecan",
    "spraybottle": "countertop cabinet drawer shelf toilet garbagecan",
    "toiletpaper": "countertop cabinet drawer shelf toilet toiletpaperhanger garbagecan",
    "cloth": "countertop cabinet drawer shelf sinkbasin bathtubbasin garbagecan",
    "handtowel": "countertop cabinet handtowelholder sinkbasin garbagecan",
    "towel": "countertop bathtubbasin towelholder",
    "candle": "countertop cabinet drawer shelf toilet bathtubbasin coffeetable dresser",
    "tissuebox": "countertop cabinet drawer shelf toilet coffeetable sidetable dresser desk",
    # bedroom and living room
    "alarmclock": "bed desk drawer dresser shelf sidetable",
    "baseballbat": "bed desk dresser sofa",
    "basketball": "armchair bed desk dresser sofa",
    "book": f"{SITTING_TOPS} drawer cabinet",
    "box": "armchair bed coffeetable desk diningtable dresser ottoman shelf sidetable sofa tvstand",
    "cd": "desk drawer dresser shelf sidetable safe garbagecan",
    "cellphone": f"{SITTING_TOPS} drawer safe",
    "creditcard": f"{SITTING_TOPS} drawer ottoman",
    "keychain": f"{SITTING_TOPS} drawer safe ottoman",
    "laptop": "armchair bed coffeetable desk diningtable dresser sofa ottoman tvstand",
    "newspaper": "armchair bed coffeetable desk diningtable drawer garbagecan ottoman sofa",
    "pen": "bed coffeetable desk diningtable drawer dresser garbagecan shelf sidetable",
    "pencil": "bed coffeetable desk diningtable drawer dresser garbagecan shelf sidetable",
    "pillow": "armchair bed ottoman sofa",
    "remotecontrol": "armchair coffeetable desk diningtable drawer dresser ottoman sofa tvstand",
    "statue": "cabinet coffeetable desk diningtable dresser safe shelf sidetable tvstand",
    "teddybear": "armchair bed sofa",
    "vase": "cabinet coffeetable desk diningtable dresser safe shelf sidetable tvstand",
    "watch": "coffeetable desk diningtable drawer dresser safe shelf sidetable sofa tvstand",
    # lamps stay where they are
    "desklamp": "desk dresser shelf sidetable coffeetable tvstand diningtable",
    "floorlamp": "desk dresser sidetable coffeetable tvstand",
}

FITS: frozenset[tuple[str, str]] = frozenset(
    (place, thing) for thing, places in _PLACES.items() for place in places.split()
)
"""Pairs (receptacle kind, object kind) that go together."""

LAMPS: tuple[str, ...] = ("desklamp", "floorlamp")
SLICEABLE = frozenset({"apple", "bread", "lettuce", "potato", "tomato"})
VESSELS = frozenset({"bowl", "cup", "mug", "plate", "pan", "pot", "box"})
HEATABLE = frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"})
COOLABLE = frozenset(
    {"apple", "bowl", "bread", "cup", "egg", "lettuce", "mug", "pan", "plate", "pot", "potato"}
    | {"tomato", "winebottle"}
)
CLEANABLE = frozenset(
    {"apple", "bowl", "butterknife", "cloth", "cup", "dishsponge", "egg", "fork", "kettle"}
    | {"knife", "ladle", "lettuce", "mug", "pan", "plate", "pot", "potato", "soapbar"}
    | {"spatula", "spoon", "tomato"}
)

_ROOM_OBJECTS: dict[str, str] = {
    "kitchen": (
        "apple bread egg lettuce potato tomato bowl cup mug plate pan pot kettle knife butterknife "
        "fork spoon ladle spatula peppershaker saltshaker dishsponge glassbottle winebottle "
        "soapbottle"
    ),
    "bathroom": (
        "soapbar soapbottle spraybottle toiletpaper cloth handtowel towel candle tissuebox "
        "dishsponge"
    ),
    "bedroom": (
        "alarmclock baseballbat basketball book bowl cd cellphone creditcard keychain laptop mug "
        "pen pencil pillow teddybear vase watch tissuebox box"
    ),
    "livingroom": (
        "book box cellphone creditcard keychain laptop newspaper pillow plate remotecontrol statue "
        "tissuebox vase watch candle pen pencil bowl"
    ),
}

ROOM_OBJECTS: dict[str, tuple[str, ...]] = {
    room: tuple(names.split()) for room, names in _ROOM_OBJECTS.items()
}
"""Objects that turn up in each room type."""

Range = tuple[int, int]

SMALL_RECEPTACLES: dict[str, dict[str, Range]] = {
    "kitchen": {
        "sinkbasin": (1, 1), "fridge": (0, 1), "microwave": (0, 1), "countertop": (1, 2),
        "diningtable": (0, 1), "cabinet": (0, 3), "drawer": (0, 3), "shelf": (0, 2),
        "stoveburner": (0, 2), "coffeemachine": (0, 1), "garbagecan": (0, 1), "sidetable": (0, 1),
    },
    "bathroom": {
        "sinkbasin": (1, 2), "toilet": (0, 1), "bathtubbasin": (0, 1), "countertop": (0, 1),
        "cabinet": (0, 3), "drawer": (0, 3), "shelf": (0, 2), "towelholder": (0, 1),
        "handtowelholder": (0, 2), "toiletpaperhanger": (0, 1), "garbagecan": (0, 1),
    },
    "bedroom": {
        "bed": (1, 1), "desk": (0, 2), "drawer": (0, 4), "dresser": (0, 1), "shelf": (0, 3),
        "sidetable": (0, 2), "safe": (0, 1), "garbagecan": (0, 1), "armchair": (0, 1),
    },
    "livingroom": {
        "sofa": (0, 2), "armchair": (0, 2), "coffeetable": (0, 2), "sidetable": (0, 2),
        "diningtable": (0, 1), "drawer": (0, 3), "cabinet": (0, 2), "shelf": (0, 3),
        "tvstand": (0, 1), "ottoman": (0, 1), "garbagecan": (0, 1), "dresser": (0, 1),
        "safe": (0, 1), "desk": (0, 1),
    },
}  # fmt: skip
"""How many of each receptacle a tiny or small room may have."""

FULL_RECEPTACLES: dict[str, dict[str, Range]] = {
    "kitchen": {
        "sinkbasin": (1, 1), "fridge": (1, 1), "microwave": (1, 1), "countertop": (1, 3),
        "diningtable": (0, 1), "cabinet": (4, 10), "drawer": (2, 8), "shelf": (0, 3),
        "stoveburner": (4, 4), "coffeemachine": (1, 1), "garbagecan": (1, 1), "sidetable": (0, 1),
    },
    "bathroom": {
        "sinkbasin": (1, 2), "toilet": (1, 1), "bathtubbasin": (0, 1), "countertop": (1, 2),
        "cabinet": (2, 6), "drawer": (2, 6), "shelf": (0, 3), "towelholder": (1, 2),
        "handtowelholder": (1, 2), "toiletpaperhanger": (1, 1), "garbagecan": (1, 1),
    },
    "bedroom": {
        "bed": (1, 2), "desk": (1, 2), "drawer": (4, 12), "dresser": (0, 2), "shelf": (2, 6),
        "sidetable": (1, 2), "safe": (0, 1), "garbagecan": (1, 1), "armchair": (0, 2),
    },
    "livingroom": {
        "sofa": (1, 2), "armchair": (1, 2), "coffeetable": (1, 2), "sidetable": (1, 2),
        "diningtable": (0, 1), "drawer": (3, 8), "cabinet": (0, 4), "shelf": (2, 6),
        "tvstand": (0, 1), "ottoman": (0, 1), "garbagecan": (1, 1), "dresser": (0, 1),
        "safe": (0, 1), "desk": (0, 1),
    },
}  # fmt: skip
"""How many of each receptacle a full room may have."""

ROOM_SIZES: dict[str, tuple[Range, Range, int]] = {
    "tiny": ((4, 5), (4, 6), 2),
    "small": ((6, 9), (7, 12), 3),
    "full": ((15, 30), (18, 36), 5),
}
"""Size -> (receptacles, objects, most objects of one kind)."""
