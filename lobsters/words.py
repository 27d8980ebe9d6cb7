"""Names, titles and texts for generated rows: enough variety to look like a site, cheap enough for bulk.

Whatever is named by a number (a user, a story, a comment) has its name by arithmetic on the number, so that a load
run that knows ids knows names without reading them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

RowDict = dict[str, Any]
"""One row by column name."""

TEXTS = 512
"""How many texts there are; stories, comments and users take them in turn."""


def _listed(text: str, separator: str = "|") -> tuple[str, ...]:
    return tuple(text.split(separator))


_NAMES = _listed(
    "ada alan alonzo anita barbara bjarne brian butler claude dana dennis donald dorothy edgar edsger evelyn frances "
    "grace guido hedy ida ivan james jean joan john karen kathleen ken larry leslie linus lynn margaret marian mary "
    "maurice niklaus niels ole peter radia ramon richard robin ruth shafi sophie stephen susan tony vint wendy",
    " ",
)
_SUBJECTS = _listed(
    "B-trees|Bloom filters|build systems|code review|columnar storage|compilers|consensus|CRDTs|dataflow|debuggers|"
    "deterministic simulation|distributed locks|error messages|event logs|filesystems|fonts|garbage collection|"
    "incremental views|keyboards|LSM trees|lock-free queues|memory allocators|monorepos|old computers|open source|"
    "package managers|parsers|password hashing|query planners|queues|regular expressions|RSS|shell scripts|"
    "spreadsheets|SQL|static sites|terminals|text editors|time zones|type inference|undo|vector clocks|virtual memory"
)
_FRAMES = _listed(
    "A practical guide to {}|A short history of {}|An hour with {}|Against {}|Ask: how do you teach {}?|"
    "Debugging {} in production|{} by example|{} considered helpful|{} from scratch|{} in 500 lines|"
    "{}, ten years later|How we got rid of {}|Notes on {}|Rewriting our {}|Show: a toy for {}|The joy of {}|"
    "The trouble with {}|Things that I wish I had known about {}|Understanding {}|What is new in {}|"
    "Why {} matter|You may not need {}"
)
_SENTENCES = _listed(
    "This matches what we saw after the last upgrade.|I would like to see figures for that.|"
    "The second half of the article is the better one.|We tried this and went back after a month.|"
    "Thanks for writing it up!|There is an older paper on the same idea.|The trade-off is not mentioned at all.|"
    "It works until the disk is full.|What happens when two of them disagree?|I read it as an argument for tests.|"
    "The author answered this elsewhere.|Nobody reads the manual, which is a pity.|I maintain something like this.|"
    "That is a good summary.|Caching was the easy part for us.|The example is wrong, but the point stands.|"
    "I have done it by hand for years.|It depends on what you measure.|The diagram alone is worth the visit.|"
    "Has anyone run this on a small machine?"
)

TAGS: tuple[tuple[str, str, str, int], ...] = (
    ("programming", "Use when every tag or no tag applies", "0", 0),
    ("practices", "Development and team practices", "0", 0),
    ("databases", "Databases, SQL and others", "0.25", 0),
    ("distributed", "Distributed systems", "0.25", 0),
    ("compsci", "Computer science and theory", "0.25", 0),
    ("performance", "Performance and optimisation", "0.25", 0),
    ("plt", "Programming language theory", "0.5", 0),
    ("formalmethods", "Formal methods", "0.5", 0),
    ("ask", "Ask the site", "0", 0),
    ("show", "Show a project of one's own", "0.25", 0),
    ("release", "Software releases and announcements", "0", 0),
    ("rant", "Rants and raves", "-0.25", 0),
    ("culture", "Technical communities and culture", "-0.25", 0),
    ("law", "Law, patents and licensing", "0", 0),
    ("job", "Employment", "-0.25", 0),
    ("event", "Events and conferences", "0", 0),
    ("security", "Security, cryptography and privacy", "0", 0),
    ("privacy", "Privacy", "0", 0),
    ("networking", "Networking", "0", 0),
    ("osdev", "Operating system design and development", "0.25", 0),
    ("linux", "Linux", "0", 0),
    ("unix", "Unix and its descendants", "0", 0),
    ("hardware", "Hardware", "0", 0),
    ("web", "Web development and news", "0", 0),
    ("browsers", "Web browsers", "0", 0),
    ("api", "API development", "0", 0),
    ("c", "C", "0", 0),
    ("c++", "C++", "0", 0),
    ("go", "Go", "0", 0),
    ("haskell", "Haskell", "0", 0),
    ("java", "Java", "0", 0),
    ("javascript", "JavaScript", "0", 0),
    ("lisp", "Lisp and Scheme", "0", 0),
    ("python", "Python", "0", 0),
    ("ruby", "Ruby", "0", 0),
    ("rust", "Rust", "0", 0),
    ("vcs", "Git and other version control", "0", 0),
    ("debugging", "Debugging techniques", "0", 0),
    ("testing", "Testing and fuzzing", "0", 0),
    ("historical", "History and retrospectives", "0", 0),
    ("education", "Education", "0", 0),
    ("visualization", "Visualisation", "0", 0),
    ("games", "Games and their design", "0", 0),
    ("science", "Science", "0", 0),
    ("pdf", "A PDF document", "0", 1),
    ("video", "A video", "0", 1),
    ("audio", "Audio", "0", 1),
    ("slides", "A slide deck", "0", 1),
    ("meta", "The site itself", "0", 0),
    ("announce", "Announcements of the site", "0.5", 0),
)
"""(tag, description, hotness_mod, is_media)"""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TRIPLES = [a + b + c for a in _DIGITS for b in _DIGITS for c in _DIGITS]
_SHORT_IDS = len(_TRIPLES) ** 2
# Multiplying by a number without a factor in common with 36 permutes the six-digit names: unique, and no two alike.
_STORY_STEP, _STORY_START = 1_234_567_891, 777_777_777
_COMMENT_STEP, _COMMENT_START = 1_618_033_985, 314_159_265


def username(user: int) -> str:
    """The unique name of user number ``user``."""
    return f"{_NAMES[user % len(_NAMES)]}{user}"


def story_short_id(story: int) -> str:
    """The six-character name of a story, unique up to 36⁶ of them."""
    high, low = divmod((story * _STORY_STEP + _STORY_START) % _SHORT_IDS, len(_TRIPLES))
    return _TRIPLES[high] + _TRIPLES[low]


def comment_short_id(comment: int) -> str:
    """The six-character name of a comment, unique up to 36⁶ of them."""
    high, low = divmod((comment * _COMMENT_STEP + _COMMENT_START) % _SHORT_IDS, len(_TRIPLES))
    return _TRIPLES[high] + _TRIPLES[low]


def titles() -> list[str]:
    """Every title that there is (about a thousand); stories take them in turn."""
    made = [frame.format(subject) for subject in _SUBJECTS for frame in _FRAMES]
    return [title[0].upper() + title[1:] for title in made]


def texts(random: Random) -> list[str]:
    """:data:`TEXTS` texts of one to five sentences."""
    return [" ".join(random.sample(_SENTENCES, random.randint(1, 5))) for _ in range(TEXTS)]


def sql_time(seconds: int) -> str:
    """Seconds since 1970 as SQL writes them, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
