"use strict";
for (const pre of document.querySelectorAll(".call pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(pre);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  pre.parentElement.append(button);
}
// On a narrow screen the list of operations stands above the page: closed, so that the page can be seen.
const list = document.querySelector("nav details");
const narrow = matchMedia("(max-width: 56rem)");
const fold = () => { list.open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();
list.addEventListener("click", (event) => {
  if (narrow.matches && event.target.closest("a")) list.open = false;
});
const filter = document.querySelector("nav input");
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  for (const item of document.querySelectorAll("nav li")) {
    const text = item.textContent.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
  }
});
